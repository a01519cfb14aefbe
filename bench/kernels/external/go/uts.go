package main

import "math/bits"

type node struct {
	hash   [5]uint32
	isRoot bool
}

func sha1(w *[16]uint32) [5]uint32 {
	a, b, c, d, e := uint32(0x67452301), uint32(0xefcdab89), uint32(0x98badcfe), uint32(0x10325476), uint32(0xc3d2e1f0)
	for i := 0; i < 20; i += 5 {
		if i+0 >= 16 {
			w[(i+0)&15] = bits.RotateLeft32(w[(i+13)&15]^w[(i+8)&15]^w[(i+2)&15]^w[(i+0)&15], 1)
		}
		e += bits.RotateLeft32(a, 5) + (d ^ (b & (c ^ d))) + 0x5a827999 + w[(i+0)&15]
		b = bits.RotateLeft32(b, 30)
		if i+1 >= 16 {
			w[(i+1)&15] = bits.RotateLeft32(w[(i+14)&15]^w[(i+9)&15]^w[(i+3)&15]^w[(i+1)&15], 1)
		}
		d += bits.RotateLeft32(e, 5) + (c ^ (a & (b ^ c))) + 0x5a827999 + w[(i+1)&15]
		a = bits.RotateLeft32(a, 30)
		if i+2 >= 16 {
			w[(i+2)&15] = bits.RotateLeft32(w[(i+15)&15]^w[(i+10)&15]^w[(i+4)&15]^w[(i+2)&15], 1)
		}
		c += bits.RotateLeft32(d, 5) + (b ^ (e & (a ^ b))) + 0x5a827999 + w[(i+2)&15]
		e = bits.RotateLeft32(e, 30)
		if i+3 >= 16 {
			w[(i+3)&15] = bits.RotateLeft32(w[(i+16)&15]^w[(i+11)&15]^w[(i+5)&15]^w[(i+3)&15], 1)
		}
		b += bits.RotateLeft32(c, 5) + (a ^ (d & (e ^ a))) + 0x5a827999 + w[(i+3)&15]
		d = bits.RotateLeft32(d, 30)
		if i+4 >= 16 {
			w[(i+4)&15] = bits.RotateLeft32(w[(i+17)&15]^w[(i+12)&15]^w[(i+6)&15]^w[(i+4)&15], 1)
		}
		a += bits.RotateLeft32(b, 5) + (e ^ (c & (d ^ e))) + 0x5a827999 + w[(i+4)&15]
		c = bits.RotateLeft32(c, 30)
	}
	for i := 20; i < 40; i += 5 {
		w[(i+0)&15] = bits.RotateLeft32(w[(i+13)&15]^w[(i+8)&15]^w[(i+2)&15]^w[(i+0)&15], 1)
		e += bits.RotateLeft32(a, 5) + (b ^ c ^ d) + 0x6ed9eba1 + w[(i+0)&15]
		b = bits.RotateLeft32(b, 30)
		w[(i+1)&15] = bits.RotateLeft32(w[(i+14)&15]^w[(i+9)&15]^w[(i+3)&15]^w[(i+1)&15], 1)
		d += bits.RotateLeft32(e, 5) + (a ^ b ^ c) + 0x6ed9eba1 + w[(i+1)&15]
		a = bits.RotateLeft32(a, 30)
		w[(i+2)&15] = bits.RotateLeft32(w[(i+15)&15]^w[(i+10)&15]^w[(i+4)&15]^w[(i+2)&15], 1)
		c += bits.RotateLeft32(d, 5) + (e ^ a ^ b) + 0x6ed9eba1 + w[(i+2)&15]
		e = bits.RotateLeft32(e, 30)
		w[(i+3)&15] = bits.RotateLeft32(w[(i+16)&15]^w[(i+11)&15]^w[(i+5)&15]^w[(i+3)&15], 1)
		b += bits.RotateLeft32(c, 5) + (d ^ e ^ a) + 0x6ed9eba1 + w[(i+3)&15]
		d = bits.RotateLeft32(d, 30)
		w[(i+4)&15] = bits.RotateLeft32(w[(i+17)&15]^w[(i+12)&15]^w[(i+6)&15]^w[(i+4)&15], 1)
		a += bits.RotateLeft32(b, 5) + (c ^ d ^ e) + 0x6ed9eba1 + w[(i+4)&15]
		c = bits.RotateLeft32(c, 30)
	}
	for i := 40; i < 60; i += 5 {
		w[(i+0)&15] = bits.RotateLeft32(w[(i+13)&15]^w[(i+8)&15]^w[(i+2)&15]^w[(i+0)&15], 1)
		e += bits.RotateLeft32(a, 5) + ((b & c) | (d & (b | c))) + 0x8f1bbcdc + w[(i+0)&15]
		b = bits.RotateLeft32(b, 30)
		w[(i+1)&15] = bits.RotateLeft32(w[(i+14)&15]^w[(i+9)&15]^w[(i+3)&15]^w[(i+1)&15], 1)
		d += bits.RotateLeft32(e, 5) + ((a & b) | (c & (a | b))) + 0x8f1bbcdc + w[(i+1)&15]
		a = bits.RotateLeft32(a, 30)
		w[(i+2)&15] = bits.RotateLeft32(w[(i+15)&15]^w[(i+10)&15]^w[(i+4)&15]^w[(i+2)&15], 1)
		c += bits.RotateLeft32(d, 5) + ((e & a) | (b & (e | a))) + 0x8f1bbcdc + w[(i+2)&15]
		e = bits.RotateLeft32(e, 30)
		w[(i+3)&15] = bits.RotateLeft32(w[(i+16)&15]^w[(i+11)&15]^w[(i+5)&15]^w[(i+3)&15], 1)
		b += bits.RotateLeft32(c, 5) + ((d & e) | (a & (d | e))) + 0x8f1bbcdc + w[(i+3)&15]
		d = bits.RotateLeft32(d, 30)
		w[(i+4)&15] = bits.RotateLeft32(w[(i+17)&15]^w[(i+12)&15]^w[(i+6)&15]^w[(i+4)&15], 1)
		a += bits.RotateLeft32(b, 5) + ((c & d) | (e & (c | d))) + 0x8f1bbcdc + w[(i+4)&15]
		c = bits.RotateLeft32(c, 30)
	}
	for i := 60; i < 80; i += 5 {
		w[(i+0)&15] = bits.RotateLeft32(w[(i+13)&15]^w[(i+8)&15]^w[(i+2)&15]^w[(i+0)&15], 1)
		e += bits.RotateLeft32(a, 5) + (b ^ c ^ d) + 0xca62c1d6 + w[(i+0)&15]
		b = bits.RotateLeft32(b, 30)
		w[(i+1)&15] = bits.RotateLeft32(w[(i+14)&15]^w[(i+9)&15]^w[(i+3)&15]^w[(i+1)&15], 1)
		d += bits.RotateLeft32(e, 5) + (a ^ b ^ c) + 0xca62c1d6 + w[(i+1)&15]
		a = bits.RotateLeft32(a, 30)
		w[(i+2)&15] = bits.RotateLeft32(w[(i+15)&15]^w[(i+10)&15]^w[(i+4)&15]^w[(i+2)&15], 1)
		c += bits.RotateLeft32(d, 5) + (e ^ a ^ b) + 0xca62c1d6 + w[(i+2)&15]
		e = bits.RotateLeft32(e, 30)
		w[(i+3)&15] = bits.RotateLeft32(w[(i+16)&15]^w[(i+11)&15]^w[(i+5)&15]^w[(i+3)&15], 1)
		b += bits.RotateLeft32(c, 5) + (d ^ e ^ a) + 0xca62c1d6 + w[(i+3)&15]
		d = bits.RotateLeft32(d, 30)
		w[(i+4)&15] = bits.RotateLeft32(w[(i+17)&15]^w[(i+12)&15]^w[(i+6)&15]^w[(i+4)&15], 1)
		a += bits.RotateLeft32(b, 5) + (c ^ d ^ e) + 0xca62c1d6 + w[(i+4)&15]
		c = bits.RotateLeft32(c, 30)
	}
	return [5]uint32{a + 0x67452301, b + 0xefcdab89, c + 0x98badcfe, d + 0x10325476, e + 0xc3d2e1f0}
}

func (n *node) child(i uint32) node {
	block := [16]uint32{5: i, 6: 1 << 31, 15: 192}
	copy(block[:5], n.hash[:])
	return node{sha1(&block), false}
}

func (n *node) children(limit uint32) uint32 {
	if n.isRoot {
		return 2000
	}
	if n.hash[4]&0x7fffffff < limit {
		return 8
	}
	return 0
}

func count(n *node, limit uint32) uint64 {
	children := n.children(limit)
	if children == 0 {
		return 1
	}
	counts, sum := make(chan uint64, children), uint64(1)
	for i := range children {
		go func() {
			child := n.child(i)
			counts <- count(&child, limit)
		}()
	}
	for range children {
		sum += <-counts
	}
	return sum
}

func main() {
	bench(nil, func(size int) uint64 {
		limit := uint32(float64(size)/1e6*2147483648.0) + 1
		root := node{sha1(&[16]uint32{4: 42, 5: 1 << 31, 15: 160}), true}
		return count(&root, limit)
	}, nil)
}
