package main

import (
	"fmt"
	"io"
	"time"
)

// progress tells how far the run is: at each tenth, or after some seconds without news, and never more than a
// few times a second. The last line says where it ended.
type progress struct {
	out          io.Writer
	total        int
	placed, told int
	start, last  time.Time
	// Of the time since the start, what does not count.
	pause time.Duration
}

func newProgress(out io.Writer, total int) *progress {
	now := time.Now()
	return &progress{out: out, total: total, start: now, last: now}
}

// at takes note of how many are placed.
func (p *progress) at(placed int, pause time.Duration) {
	p.placed, p.pause = placed, pause
	quiet := time.Since(p.last)
	tenth := placed*10/p.total > p.told*10/p.total
	if tenth && quiet > 300*time.Millisecond || quiet > 5*time.Second {
		p.tell()
	}
}

// end tells what has not been told.
func (p *progress) end() {
	if p.told < p.placed {
		p.tell()
	}
}

// perSecond is a rate, also where no time has passed.
func perSecond(n int, t time.Duration) float64 { return float64(n) / max(t.Seconds(), 1e-9) }

func (p *progress) tell() {
	p.told, p.last = p.placed, time.Now()
	fmt.Fprintf(p.out, "%3d%%  %d placed, %.0f/s\n", 100*p.placed/p.total, p.placed,
		perSecond(p.placed, p.last.Sub(p.start)-p.pause))
}
