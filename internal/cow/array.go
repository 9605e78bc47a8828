// Package cow has persistent tables: copies share structure, and a writer copies only what it does not own.
//
// Ownership is a number. Every page and leaf carries the number of the writer that made it. A writer
// changes what carries its own number in place and copies everything else first. To freeze a table, copy the
// struct and give the writer a new number ([NewOwner]): from then on it owns nothing and the copy never
// changes. Reading a frozen copy needs no lock.
package cow

import (
	"slices"
	"sync/atomic"
)

// Owner identifies one writer between two freezes. The zero Owner owns nothing.
type Owner uint64

var owners atomic.Uint64

// NewOwner returns a number that no other writer in this process has.
func NewOwner() Owner { return Owner(owners.Add(1)) }

const pageBits = 5

// Array is a persistent array of T, grown at its end. T is what is copied at once: a small Go array of
// records. The zero value is empty.
type Array[T any] struct {
	pages []*page[T]
	owner Owner // of the pages slice
	n     int
}

type page[T any] struct {
	owner  Owner
	leaves [1 << pageBits]*leaf[T]
}

type leaf[T any] struct {
	owner Owner
	value T
}

// Len returns how many elements there are.
func (a *Array[T]) Len() int { return a.n }

// At returns element i for reading. It requires 0 <= i < Len.
func (a *Array[T]) At(i int) *T {
	return &a.pages[i>>pageBits].leaves[i&(1<<pageBits-1)].value
}

// Own returns element i for writing by o, copying it first if o does not own it.
func (a *Array[T]) Own(i int, o Owner) *T {
	p := a.ownPage(i>>pageBits, o)
	l := p.leaves[i&(1<<pageBits-1)]
	if l.owner != o {
		l = &leaf[T]{owner: o, value: l.value}
		p.leaves[i&(1<<pageBits-1)] = l
	}
	return &l.value
}

func (a *Array[T]) ownPage(i int, o Owner) *page[T] {
	if a.owner != o {
		a.pages = slices.Clone(a.pages)
		a.owner = o
	}
	p := a.pages[i]
	if p.owner != o {
		p = &page[T]{owner: o, leaves: p.leaves}
		a.pages[i] = p
	}
	return p
}

// Grow appends zero elements, owned by o, until there are n.
func (a *Array[T]) Grow(n int, o Owner) {
	for a.n < n {
		if a.n>>pageBits == len(a.pages) {
			if a.owner != o {
				a.pages = slices.Clone(a.pages)
				a.owner = o
			}
			a.pages = append(a.pages, &page[T]{owner: o})
		}
		a.ownPage(a.n>>pageBits, o).leaves[a.n&(1<<pageBits-1)] = &leaf[T]{owner: o}
		a.n++
	}
}
