package main

func skynet(number, leaves uint64, to chan<- uint64) {
	if leaves == 1 {
		to <- number
		return
	}
	sums, sum := make(chan uint64, 10), uint64(0)
	for i := range uint64(10) {
		go skynet(number+i*(leaves/10), leaves/10, sums)
	}
	for range 10 {
		sum += <-sums
	}
	to <- sum
}

func main() {
	bench(nil, func(n int) uint64 {
		sum := make(chan uint64, 1)
		go skynet(0, uint64(n), sum)
		return <-sum
	}, nil)
}
