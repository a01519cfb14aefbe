package main

type board struct {
	columns [16]uint8
	rows    int
}

func (b *board) isFree(column uint8) bool {
	for row := range b.rows {
		other, distance := b.columns[row], uint8(b.rows-row)
		if other == column || other == column+distance || other == column-distance {
			return false
		}
	}
	return true
}

func solutions(b board, n int) uint64 {
	if b.rows == n {
		return 1
	}
	counts, tasks, sum := make(chan uint64, n), 0, uint64(0)
	for column := range uint8(n) {
		if b.isFree(column) {
			next := b
			next.columns[next.rows] = column
			next.rows++
			tasks++
			go func() { counts <- solutions(next, n) }()
		}
	}
	for range tasks {
		sum += <-counts
	}
	return sum
}

func main() { bench(nil, func(n int) uint64 { return solutions(board{}, n) }, nil) }
