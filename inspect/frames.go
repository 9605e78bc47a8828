package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
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
	// turn holds a token while a caller uses the fields below. It is not a mutex, because that caller may wait for the ledger.
	turn  chan struct{}
	last  *frame
	state *orbit.State
	// round is the number of the last round when the frame was made, and due is when the next frame may be made.
	round uint64
	due   time.Time
	// sick is what Handler.sick said then, and silent which engines stood by or made no passes.
	sick, silent string
	// old says that the last frame could not be made of the newest state; nil: it could. failed is when that was found out.
	old    *trouble
	failed time.Time
	// version is the version of the section that was the last to change.
	version uint64
}

// idleShare bounds the load of frames: if making a frame took the time t, the next one is not made before idleShare*t
// has passed.
const idleShare = 20

// frame returns the newest frame, nil if there is none, and what keeps it from being of the newest state. If the next frame is
// due, and the state, the rounds or the engines have changed, it makes a new one. Of callers that come at a time one reads the
// ledger, and the others get what it finds out.
func (h *Handler) frame(ctx context.Context) (*frame, *trouble) {
	f, came := &h.frames, time.Now()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, &trouble{Error: textOf(ctx.Err())}
	}
	if f.last != nil && f.old == nil && time.Now().Before(f.due) || f.old != nil && f.failed.After(came) {
		return f.last, f.old
	}
	state, old := h.read(context.WithoutCancel(ctx)) // others use it, too
	start := time.Now()
	if f.old = old; old != nil {
		f.failed = start
	}
	if state == nil {
		return nil, old
	}
	round, sick, silent := h.log.count(), h.sick(), h.log.silent()
	if f.last == nil || state != f.state || round != f.round || sick != f.sick || silent != f.silent {
		f.make(h, state)
		f.state, f.round, f.sick, f.silent = state, round, sick, silent
	}
	f.due = time.Now().Add(max(h.every(), idleShare*time.Since(start)))
	return f.last, old
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
	f, old := h.frame(r.Context())
	if f == nil {
		failUnread(w, old)
		return
	}
	out := map[string]any{}
	if old != nil {
		out["trouble"] = old
	}
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
