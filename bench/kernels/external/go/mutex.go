package main

import "sync"

func main() {
	threads := number(4)
	bench(nil, func(n int) uint64 {
		var mutex sync.Mutex
		var group sync.WaitGroup
		count := uint64(0)
		for range threads {
			group.Add(1)
			go func() {
				for range n / threads {
					mutex.Lock()
					count++
					mutex.Unlock()
				}
				group.Done()
			}()
		}
		group.Wait()
		return count
	}, nil)
}
