package main

func main() {
	bench(nil, func(n int) uint64 {
		sum := uint64(0)
		for i := range n {
			result := make(chan uint64, 1)
			go func() { result <- uint64(i) }()
			sum += <-result
		}
		return sum
	}, nil)
}
