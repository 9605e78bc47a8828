package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// section is a part of a frame, as JSON. Clients are sent those whose version they have not had.
type section struct {
	name    string
	body    json.RawMessage
	version uint64
}

// frame is what is told of a state, and of the engines at that time.
type frame struct {
	sections []section
}

// frames makes frames, one at a time and no more often than Every, for all clients together.
type frames struct {
	mu    sync.Mutex
	last  *frame
	state *orbit.State
	// The number of the last round that the frame tells of, and when the next one may be made.
	round uint64
	due   time.Time
	// The version of a section that has changed last.
	version uint64
}

// idleShare is how many times as long as making a frame takes no other is made.
const idleShare = 20

// frame returns the newest frame, and makes one if the last is too old.
func (h *Handler) frame(ctx context.Context) (*frame, error) {
	f := &h.frames
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && time.Now().Before(f.due) {
		return f.last, nil
	}
	state, err := h.Ledger.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	round := h.log.count()
	if f.last == nil || state != f.state || round != f.round {
		f.make(h, state)
		f.state, f.round = state, round
	}
	f.due = time.Now().Add(max(h.every(), idleShare*time.Since(start)))
	return f.last, nil
}

// make makes a frame of a state. A section that says what it said before keeps its version.
func (f *frames) make(h *Handler, state *orbit.State) {
	next := &frame{}
	add := func(name string, value any) {
		body, err := json.Marshal(value)
		if err != nil { // no value of this package is such
			body, _ = json.Marshal(map[string]string{"error": err.Error()})
		}
		i := len(next.sections)
		if f.last != nil && bytes.Equal(f.last.sections[i].body, body) {
			next.sections = append(next.sections, f.last.sections[i])
			return
		}
		f.version++
		next.sections = append(next.sections, section{name, body, f.version})
	}
	add("overview", h.makeOverview(state))
	add("queue", h.makeQueue(state))
	add("rules", makeRules(state))
	add("engines", h.log.engines())
	f.last = next
}

func (h *Handler) every() time.Duration {
	if h.Every <= 0 {
		return 250 * time.Millisecond
	}
	return h.Every
}

// serveState answers with all that the page shows at first, once.
func (h *Handler) serveState(w http.ResponseWriter, r *http.Request) {
	f, err := h.frame(r.Context())
	if err != nil {
		fail(w, http.StatusServiceUnavailable, "the ledger cannot be read: "+textOf(err))
		return
	}
	out := map[string]any{}
	for _, s := range f.sections {
		out[s.name] = s.body
	}
	rounds, missed, _ := h.log.after(0, mostRounds)
	out["rounds"] = roundsEvent{h.log.boot, rounds, missed}
	answer(w, out)
}

// roundsEvent is what has passed since the last one. A boot that is another one than before says that the process was started anew.
type roundsEvent struct {
	Boot   string  `json:"boot"`
	Rounds []round `json:"rounds"`
	// Missed counts the rounds before these that are not told any more.
	Missed uint64 `json:"missed"`
}
