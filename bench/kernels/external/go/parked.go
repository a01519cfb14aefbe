package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Memory of this process in bytes, with its page tables.
func memory() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	sum := 0
	for _, line := range strings.Split(string(status), "\n") {
		if strings.HasPrefix(line, "VmRSS:") || strings.HasPrefix(line, "VmPTE:") {
			n, _ := strconv.Atoi(strings.Fields(line)[1])
			sum += n * 1024
		}
	}
	return sum
}

func main() {
	size, gate := number(2), make(chan struct{})
	var parked atomic.Int64
	var group sync.WaitGroup
	before, start := memory(), time.Now()
	for range size {
		group.Add(1)
		go func() {
			parked.Add(1)
			<-gate
			group.Done()
		}()
	}
	for parked.Load() < int64(size) {
		runtime.Gosched()
	}
	taken := time.Since(start)
	each := (memory() - before) / size
	close(gate)
	group.Wait()
	fmt.Println(taken.Nanoseconds(), 0, each)
}
