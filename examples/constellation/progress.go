package main

import (
	"fmt"
	"io"
	"time"
)

// progress says now and then how far a run is, and only of runs that take long.
type progress struct {
	out    io.Writer
	total  int
	every  time.Duration
	placed int
	last   time.Time
}

// at takes note of how many are placed.
func (p *progress) at(placed int) {
	if p.placed = placed; time.Since(p.last) < p.every {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(p.out, "%3d%%  %d placed\n", 100*placed/p.total, placed)
}
