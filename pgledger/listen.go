package pgledger

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orbitsched/orbit/internal/rate"
)

// listener is what a log needs to be told of changes. Notifications come on a connection of its own. They may be lost: while
// that connection is made again, or where a proxy does not pass them on. So the log also asks every now and then.
type listener struct {
	// stop ends the goroutine of listen, done waits for it.
	stop context.CancelFunc
	done sync.WaitGroup
	// polled is what poll has seen last. Only that goroutine uses it.
	polled [2]int64
	// answered says that the last poll without notifications was answered. Only that goroutine uses it.
	answered bool
	// outage is what OnError has been told of lost notifications. Only that goroutine uses it.
	outage rate.Outage
}

const (
	// pollEvery is how long the log waits for a notification before it asks whether there is something new.
	pollEvery = 250 * time.Millisecond
	// pause is how long it waits before it connects again.
	pause = 100 * time.Millisecond
)

// start begins to listen.
func (h *Log) start() {
	of := fnv.New32a()
	_, _ = of.Write([]byte(h.options.Schema)) // cannot fail
	h.channel, h.self = fmt.Sprintf("orbit_%08x_%d", of.Sum32(), h.id), strconv.FormatUint(rand.Uint64(), 36)
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.done.Go(func() {
		for ctx.Err() == nil {
			h.ask(ctx, h.listen(ctx))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	})
}

// ask polls once, because there are no notifications. If the server answers before and after a connection for them has failed, only
// that connection is at fault, and OnError is told. If the server does not answer, the ledger is made to read: it tells of that.
func (h *Log) ask(ctx context.Context, failed error) {
	before := h.answered
	err := h.poll(ctx, h.pool)
	switch h.answered = err == nil; {
	case ctx.Err() != nil:
	case err != nil:
		h.signal()
	case before:
		h.outage.Lost(fmt.Errorf("pgledger: no notifications, asking every %v instead: %w", pause, shorter(failed)), h.options.OnError)
	}
}

// listen waits for notifications until its connection fails.
func (h *Log) listen(ctx context.Context) error {
	conn, err := h.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // the server notices by itself
	}()
	h.outage.Back(h.options.OnError)
	h.answered = false
	h.signal()       // there was no notification of what came before
	defer h.signal() // nor will there be one of what comes next
	for {
		n, err := h.notification(ctx, conn)
		switch {
		case err != nil:
			return err
		case n == nil:
			if err := h.poll(ctx, conn); err != nil {
				return err
			}
		case n.Payload != h.self:
			h.signal()
		}
	}
}

// connect takes a connection out of the pool, which then makes a new one when it needs it, and listens on it.
func (h *Log) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	pooled, err := h.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Hijack()
	if _, err := conn.Exec(ctx, "LISTEN "+h.channel); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// notification waits for the next notification; nil: there was none for a while.
func (h *Log) notification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, pollEvery)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		return nil, nil //nolint:nilnil // nothing has happened
	}
	return n, err
}

// poll signals if there is something new since the last poll.
func (h *Log) poll(ctx context.Context, on interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	var now [2]int64
	if err := on.QueryRow(ctx, h.sql.poll, h.id).Scan(&now[0], &now[1]); err != nil {
		return err
	}
	if now != h.polled {
		h.signal()
	}
	h.polled = now
	return nil
}

// signal puts a token into the channel of changes.
func (h *Log) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Changed implements [logledger.Log].
func (h *Log) Changed() <-chan struct{} { return h.changed }

// Close implements [logledger.Log]. It waits for the calls that still run.
func (h *Log) Close() error {
	h.stop()
	h.done.Wait()
	h.pool.Close()
	return nil
}
