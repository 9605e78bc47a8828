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

// section is a part of a frame, as JSON. Its version rises when its content changes. A client is sent only the sections
// that are newer than what it was sent before.
type section struct {
	name    string
	body    json.RawMessage
	version uint64
}

// frame is what the page shows of one state and of the engines at that time, except for the rounds.
type frame struct {
	sections []section
}

// frames makes the frames that all clients share. It makes one frame at a time, and no more often than Handler.Every.
type frames struct {
	mu    sync.Mutex
	last  *frame
	state *orbit.State
	// round is the number of the last round when the frame was made, and due is when the next frame may be made.
	round uint64
	due   time.Time
	// trouble is what Handler.trouble said then.
	trouble string
	// version is the version of the section that was the last to change.
	version uint64
}

// idleShare bounds the load of frames: if making a frame took the time t, the next one is not made before idleShare*t
// has passed.
const idleShare = 20

// frame returns the newest frame. If the next frame is due, and the state or the rounds have changed, it makes a new
// one.
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
	round, trouble := h.log.count(), h.trouble()
	if f.last == nil || state != f.state || round != f.round || trouble != f.trouble {
		f.make(h, state)
		f.state, f.round, f.trouble = state, round, trouble
	}
	f.due = time.Now().Add(max(h.every(), idleShare*time.Since(start)))
	return f.last, nil
}

// make makes a frame from a state. A section whose content has not changed keeps its version.
func (f *frames) make(h *Handler, state *orbit.State) {
	next := &frame{}
	add := func(name string, value any) {
		body, err := json.Marshal(value)
		if err != nil { // cannot happen: all values of this package can be encoded
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
	add("waiting", h.makeWaiting(state))
	add("rules", makeRules(state))
	add("queues", makeQueues(state))
	add("engines", h.log.engines())
	f.last = next
}

func (h *Handler) every() time.Duration {
	if h.Every <= 0 {
		return 250 * time.Millisecond
	}
	return h.Every
}

// serveState answers once with all sections of the frame and the rounds that are kept. It needs no event stream.
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

// roundsEvent carries the rounds since the previous event. If Boot differs from that of the previous event, the process
// has been restarted.
type roundsEvent struct {
	Boot   string  `json:"boot"`
	Rounds []round `json:"rounds"`
	// Missed counts the rounds between the previous event and these rounds that are left out.
	Missed uint64 `json:"missed"`
}
