package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/orbitsched/orbit/logledger"
)

// progress shows at each tick what is being done.
type progress struct {
	out  io.Writer
	end  chan struct{}
	done sync.WaitGroup

	mu sync.Mutex // guards what follows
	// doing says what is being done; "": nothing that takes long.
	doing string
	began time.Time
	// entries is how many of the entries up to tail are done, and at the index of the last of them; bytes is their size.
	entries, bytes int64
	at, tail       logledger.Index
}

// start begins to show progress. Stop ends it.
func start(out io.Writer, ticks <-chan time.Time) *progress {
	p := &progress{out: out, end: make(chan struct{})}
	p.done.Go(func() {
		for {
			select {
			case <-ticks:
				p.show()
			case <-p.end:
				return
			}
		}
	})
	return p
}

// stop ends the progress, and returns when nothing more is shown.
func (p *progress) stop() {
	close(p.end)
	p.done.Wait()
}

// begin says what is being done next, with a log up to an entry.
func (p *progress) begin(doing string, tail logledger.Index) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing, p.began, p.tail, p.at, p.entries, p.bytes = doing, time.Now(), tail, 0, 0, 0
}

// part counts a part that is done.
func (p *progress) part(part *logledger.Part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.bytes = part.Index, p.bytes+part.Bytes
	if part.State == nil {
		p.entries++
	}
}

// show writes a line.
func (p *progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doing == "" {
		return
	}
	where := "the checkpoint"
	if p.entries > 0 {
		where = fmt.Sprintf("entry %d of %d, %d bytes", p.at, max(p.at, p.tail), p.bytes)
	}
	fmt.Fprintf(p.out, "orbitlog: %s: %s, %v\n", p.doing, where, time.Since(p.began).Round(time.Second))
}
