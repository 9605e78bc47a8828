package main

import (
	"fmt"
	"io"
	"time"
)

// progress prints from time to time how many capsules are placed. Only long runs print it.
type progress struct {
	out    io.Writer
	total  int
	every  time.Duration
	placed int
	last   time.Time
}

// at tells progress how many capsules are placed.
func (p *progress) at(placed int) {
	if p.placed = placed; time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(p.out, "%3d%%  %d placed\n", 100*placed/p.total, placed)
}
