package main

import "runtime"

func main() {
	bench(nil, func(n int) uint64 {
		done := make(chan uint64, 2)
		for range 2 {
			go func() {
				count := uint64(0)
				for range n / 2 {
					runtime.Gosched()
					count++
				}
				done <- count
			}()
		}
		return <-done + <-done
	}, nil)
}
