package main

func fib(n int) uint64 {
	if n < 2 {
		return uint64(n)
	}
	a := make(chan uint64, 1)
	go func() { a <- fib(n - 1) }()
	b := fib(n - 2)
	return <-a + b
}

func main() { bench(nil, fib, nil) }
