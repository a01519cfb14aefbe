package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func number(i int) int {
	n, err := strconv.Atoi(os.Args[i])
	if err != nil {
		panic(err)
	}
	return n
}

// WORKERS SIZE RUNS: times run, once untimed first, and prints nanoseconds and result of each run.
func bench(setup func(size int), run func(size int) uint64, check func(size int, result uint64) uint64) {
	size := number(2)
	for i := 0; i <= number(3); i++ {
		if setup != nil {
			setup(size)
		}
		start := time.Now()
		result := run(size)
		taken := time.Since(start)
		if check != nil {
			result = check(size, result)
		}
		if i > 0 {
			fmt.Println(taken.Nanoseconds(), result)
		}
	}
}
