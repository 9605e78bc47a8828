package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// log prints lines with the time since the start, from any goroutine.
type log struct {
	mu    sync.Mutex // guards out
	out   io.Writer
	began time.Time
}

func newLog(out io.Writer) *log { return &log{out: out, began: time.Now()} }

func (l *log) tell(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "%5.2fs  %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}
