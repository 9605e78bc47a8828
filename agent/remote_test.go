package agent_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"

	"github.com/orbitsched/orbit"
)

// gate is a ledger of a process that may be suspended: until it goes on, it neither reads nor writes.
type gate struct {
	*orbit.MemoryLedger
	mu     sync.Mutex
	closed chan struct{} // nil: the process is at work
}

// pause suspends the process, or lets it go on.
func (g *gate) pause(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case on && g.closed == nil:
		g.closed = make(chan struct{})
	case !on && g.closed != nil:
		close(g.closed)
		g.closed = nil
	}
}

// wait returns nil when the process is at work, and the error of ctx if that ends before.
func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return errors.Join(orbit.ErrUnavailable, ctx.Err())
	}
}

func (g *gate) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if err := g.wait(ctx); err != nil {
		return 0, err
	}
	return g.MemoryLedger.Propose(ctx, p)
}

func (g *gate) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	if err := g.wait(ctx); err != nil {
		out := make([]orbit.Outcome, len(batch))
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	return g.MemoryLedger.ProposeBatch(ctx, batch)
}

func (g *gate) Snapshot(ctx context.Context) (*orbit.State, error) {
	if err := g.wait(ctx); err != nil {
		return nil, err
	}
	return g.MemoryLedger.Snapshot(ctx)
}

func (g *gate) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	rev, err := g.MemoryLedger.Wait(ctx, after)
	return rev, errors.Join(err, g.wait(ctx))
}

// network carries requests to hosts.
type network map[string]*remote

func (n network) RoundTrip(request *http.Request) (*http.Response, error) {
	return n[request.URL.Host].RoundTrip(request)
}

// remote carries requests to the handler of the control process without a network. A request that comes while the process
// is suspended is served when it goes on, though nobody waits for the answer any more.
type remote struct {
	gate *gate
	late sync.WaitGroup
	mu   sync.Mutex
	to   http.Handler // nil: nothing listens
	// loses, if set, says whether the answer of the call is lost.
	loses func() bool
	calls atomic.Int64
}

func (r *remote) set(to http.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *remote) get() http.Handler {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.to
}

func (r *remote) loseBy(loses func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loses = loses
}

func (r *remote) lost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loses != nil && r.loses()
}

var errRefused = errors.New("connection refused")

func (r *remote) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, to := request.Context(), r.get()
	if to == nil {
		return nil, errRefused
	}
	r.calls.Add(1)
	answers := make(chan *http.Response, 1)
	r.late.Go(func() {
		served := ctx
		if r.gate.wait(context.WithoutCancel(ctx)) == nil && ctx.Err() != nil { // it has waited in a socket
			brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), sec)
			defer cancel()
			served = brief
		}
		if r.get() != to { // that process is gone
			return
		}
		recorder := httptest.NewRecorder()
		to.ServeHTTP(recorder, request.WithContext(served))
		answers <- recorder.Result()
	})
	select {
	case answer := <-answers:
		if r.lost() {
			return nil, errors.New("connection lost")
		}
		return answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
