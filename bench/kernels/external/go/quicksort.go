package main

import "sync"

var numbers []uint32

func setup(n int) {
	numbers = make([]uint32, n)
	x := uint64(42)
	for i := range numbers {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		numbers[i] = uint32(x >> 32)
	}
}

func partition(v []uint32) int {
	a, b, c := v[0], v[len(v)/2], v[len(v)-1]
	pivot := max(min(a, b), min(max(a, b), c))
	i, j := 0, len(v)-1
	for {
		for v[i] < pivot {
			i++
		}
		for v[j] > pivot {
			j--
		}
		if i >= j {
			return i
		}
		v[i], v[j] = v[j], v[i]
		i++
		j--
	}
}

func sort(v []uint32) {
	if len(v) <= 32 {
		for i := 1; i < len(v); i++ {
			x, j := v[i], i
			for ; j > 0 && v[j-1] > x; j-- {
				v[j] = v[j-1]
			}
			v[j] = x
		}
		return
	}
	middle := partition(v)
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		sort(v[:middle])
		group.Done()
	}()
	sort(v[middle:])
	group.Wait()
}

func main() {
	bench(setup, func(int) uint64 {
		sort(numbers)
		return 0
	}, func(_ int, result uint64) uint64 {
		for _, n := range numbers {
			result = result*31 + uint64(n)
		}
		return result
	})
}
