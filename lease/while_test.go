package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
)

// office is work that several holders want to do and only one may do at a time.
type office struct {
	t       testing.TB
	working atomic.Int32
	who     atomic.Value
	times   atomic.Int32
}

func (o *office) work(holder string) func(context.Context) error {
	return func(ctx context.Context) error {
		require.Equal(o.t, int32(1), o.working.Add(1), "%s works beside %v", holder, o.who.Load())
		o.who.Store(holder)
		o.times.Add(1)
		<-ctx.Done()
		o.working.Add(-1)
		return nil
	}
}

// One works, and the other stands by until the first has gone.
func TestWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &lease.Keeper{Ledger: &orbit.MemoryLedger{}}
		go func() { _ = k.Run(t.Context()) }()
		o := &office{t: t}
		first, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.While(first, "engines", "a", o.work("a")) }()
		synctest.Wait()
		go func() { _ = k.While(t.Context(), "engines", "b", o.work("b")) }()
		time.Sleep(time.Hour)
		require.Equal(t, "a", o.who.Load())
		require.Equal(t, int32(1), o.times.Load())
		leave()
		require.NoError(t, <-done)
		time.Sleep(10*time.Second + 1)
		require.Equal(t, "b", o.who.Load())
		require.Equal(t, int32(1), o.working.Load())
	})
}

// Of two processes that run one population under While, one runs its engines, and the other says that its own stand by; when the
// first has gone, it is the other way round.
func TestWhileOneRunsTheEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &lease.Keeper{Ledger: &orbit.MemoryLedger{}}
		go func() { _ = k.Run(t.Context()) }()
		process := func(ctx context.Context, holder string) (running func() string, done chan error) {
			p, done := nav.Default(k.Ledger), make(chan error, 1)
			go func() { done <- k.While(ctx, "engines", holder, p.Run) }()
			time.Sleep(time.Minute)
			return func() (run string) {
				for _, e := range p.Engines {
					run += fmt.Sprint(e.Running(), " ")
				}
				return run
			}, done
		}
		ctx, leave := context.WithCancel(t.Context())
		first, done := process(ctx, "a")
		second, _ := process(t.Context(), "b")
		require.Equal(t, []string{"true true true ", "false false false "}, []string{first(), second()})
		leave()
		require.NoError(t, <-done)
		time.Sleep(10*time.Second + 1)
		require.Equal(t, []string{"false false false ", "true true true "}, []string{first(), second()})
	})
}

// Work ends with its term, and is called again under another one.
func TestWhileTermsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &lease.Keeper{Ledger: &orbit.MemoryLedger{}}
		go func() { _ = k.Run(t.Context()) }()
		o := &office{t: t}
		go func() { _ = k.While(t.Context(), "engines", "a", o.work("a")) }()
		synctest.Wait()
		term, live := k.Live("engines")
		require.True(t, live)
		require.NoError(t, k.Resign(t.Context(), term))
		time.Sleep(10*time.Second + 1)
		require.Zero(t, o.working.Load(), "the term has ended")
		time.Sleep(10 * time.Second)
		require.Equal(t, int32(1), o.working.Load())
		require.Equal(t, int32(2), o.times.Load())
	})
}

// If a holder crashes, another one works once the term has run out.
func TestWhileAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &lease.Keeper{Ledger: &orbit.MemoryLedger{}}
		go func() { _ = k.Run(t.Context()) }()
		acquire(t, k, "engines", "crashed")
		o := &office{t: t}
		go func() { _ = k.While(t.Context(), "engines", "b", o.work("b")) }()
		time.Sleep(60*time.Second - 1)
		require.Zero(t, o.times.Load())
		time.Sleep(10*time.Second + 1)
		require.Equal(t, "b", o.who.Load())
	})
}

// The error of work is returned, and the lease is free at once. What no later try can mend is returned, too.
func TestWhileReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := &orbit.MemoryLedger{}
		k := &lease.Keeper{Ledger: ledger}
		done := errors.New("done")
		require.ErrorIs(t, k.While(t.Context(), "engines", "a", func(context.Context) error { return done }), done)
		require.NoError(t, k.While(t.Context(), "engines", "b", func(context.Context) error { return nil }))
		last, end := context.WithCancel(t.Context())
		require.ErrorIs(t, k.While(last, "engines", "b", func(ctx context.Context) error {
			end()
			<-ctx.Done()
			return done
		}), done, "also after ctx has ended")
		acquire(t, k, "engines", "c")

		never := func(context.Context) error {
			t.Error("works without a lease")
			return nil
		}
		require.ErrorIs(t, k.While(t.Context(), "", "a", never), orbit.ErrInvalid)
		_, err := ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: k.Key("broken"), Value: "?"}}})
		require.NoError(t, err)
		require.ErrorIs(t, k.While(t.Context(), "broken", "a", never), lease.ErrCorrupt)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, k.While(ended, "engines", "d", never))
	})
}
