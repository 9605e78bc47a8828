package inspect

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/orbitsched/orbit"
)

// mostReading is how long the handler waits for the ledger's newest state. After that it goes on with the one that it knows.
const mostReading = 2 * time.Second

// known is a state, and when it was read.
type known struct {
	state *orbit.State
	at    time.Time
}

// trouble says that the ledger cannot be read, so that what is shown is old.
type trouble struct {
	// Error is why; empty: it can be read again.
	Error string `json:"error"`
	// Since is when the state was read that is shown, in milliseconds since 1970; 0: there is none.
	Since int64 `json:"since,omitempty"`
}

// read returns the newest state. If the ledger does not answer in time, it returns the state that was read last, and what
// the trouble is; the state is nil if there is none.
func (h *Handler) read(ctx context.Context) (*orbit.State, *trouble) {
	ctx, cancel := context.WithTimeout(ctx, mostReading)
	defer cancel()
	state, err := h.Ledger.Snapshot(ctx)
	if err == nil {
		h.known.Store(&known{state, time.Now()})
		return state, nil
	}
	if sick := orbit.HealthOf(h.Ledger); sick != nil && errors.Is(err, context.DeadlineExceeded) {
		err = sick // which says more
	}
	old := &trouble{Error: textOf(err)}
	last := h.known.Load()
	if last == nil {
		return nil, old
	}
	old.Since = last.at.UnixMilli()
	return last.state, old
}

// snapshot returns the newest state, or the one that was read last and the trouble. If there is none, it answers with an
// error and returns nil.
func (h *Handler) snapshot(w http.ResponseWriter, r *http.Request) (*orbit.State, *trouble) {
	state, old := h.read(r.Context())
	if state == nil {
		failUnread(w, old)
	}
	return state, old
}

// failUnread answers that the ledger cannot be read and that nothing was read before.
func failUnread(w http.ResponseWriter, old *trouble) {
	w.Header().Set("Retry-After", "2")
	fail(w, http.StatusServiceUnavailable, "the ledger cannot be read, and this process has not read it before: "+old.Error+"; ask again")
}
