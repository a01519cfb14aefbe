// fib(n) with a goroutine per call: fib_go n=NUMBER threads=COUNT
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

func fib(n int, out chan int) {
	if n < 2 {
		out <- n
		return
	}
	both := make(chan int, 2)
	go fib(n-1, both)
	go fib(n-2, both)
	out <- <-both + <-both
}

func number(name string, otherwise int) int {
	for _, a := range os.Args[1:] {
		if strings.HasPrefix(a, name+"=") {
			fmt.Sscan(a[len(name)+1:], &otherwise)
		}
	}
	return otherwise
}

func main() {
	n := number("n", 10)
	runtime.GOMAXPROCS(number("threads", 1))
	out := make(chan int, 1)
	start := time.Now()
	go fib(n, out)
	result := <-out
	took := float64(time.Since(start).Nanoseconds())
	a, b := 0.0, 1.0
	for i := 0; i < n+1; i++ {
		a, b = b, a+b
	}
	fmt.Printf("call %g\ntime %g\ncheck fib %d\n", took/(2*a-1), took/1e9, result)
}
