package rate

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Log writes errors to slog.Default() that are reported to no caller: up to ten at once, and one more every 10 s. The
// zero value is ready to use, and its method may be called from any goroutine.
type Log struct {
	mu      sync.Mutex // guards the fields below
	allowed Allowance
	// The number of errors left out since the last line.
	dropped int
}

// Error writes a line with an error, and with the number of errors left out before it.
func (l *Log) Error(ctx context.Context, text string, err error, attrs ...slog.Attr) {
	l.mu.Lock()
	if l.allowed.Take(time.Now(), 10*time.Second, 10) > 0 {
		l.dropped++
		l.mu.Unlock()
		return
	}
	attrs = append(attrs, slog.Any("error", err), slog.Int("dropped", l.dropped))
	l.dropped = 0
	l.mu.Unlock()
	level := slog.LevelError
	if errors.Is(err, ErrBack) {
		level = slog.LevelInfo
	}
	slog.Default().LogAttrs(ctx, level, text, attrs...)
}

// Reporter returns a function that passes errors to report, one at a time, from any goroutine. If report is nil, it writes them
// to slog.Default() as a Log does, with this text.
func Reporter(report func(error), text string) func(error) {
	if report == nil {
		var log Log
		return func(err error) { log.Error(context.Background(), text, err) }
	}
	var mu sync.Mutex
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		report(err)
	}
}
