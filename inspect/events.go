package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// patience is how long one step of a stream may take. A client that does not read the events of a step within this
	// time is disconnected.
	patience = 10 * time.Second
	// heartbeat is how long a stream may be silent. After that it sends a comment, because only a failed write shows
	// that the client has gone.
	heartbeat = 15 * time.Second
	// mostAtOnce is the largest number of rounds in one event.
	mostAtOnce = 50
)

// serveEvents streams changes as server-sent events. The events "overview", "waiting", "rules", "queues" and "engines"
// carry the whole section when it has changed. The event "rounds" carries the rounds since the previous such event, and
// "trouble" says that the ledger cannot be read, or can be read again. The id of a "rounds" event names the last round in it, and a client
// that reconnects sends this id to continue after that round.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		return
	}
	if !h.enter() {
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, "as many clients follow the events as may; close a page, or raise inspect.Handler.Clients")
		return
	}
	defer h.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // tells proxies not to delay events
	s := stream{h: h, out: w, to: http.NewResponseController(w)}
	s.resume(cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	tick := time.NewTicker(h.every())
	defer tick.Stop()
	for s.step(r) == nil {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-h.done:
			return
		}
	}
}

// enter registers a client of the events. It returns false if the limit of clients is reached.
func (h *Handler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := h.Clients
	if most <= 0 {
		most = 32
	}
	if h.clients >= most {
		return false
	}
	h.clients++
	return true
}

func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients--
}

// stream is the stream of events to one client.
type stream struct {
	h   *Handler
	out http.ResponseWriter
	to  *http.ResponseController
	// version is the newest version of a section that was sent, and round is the number of the last round.
	version, round uint64
	greeted        bool
	// trouble is what was sent last of why the ledger cannot be read; empty: it can.
	trouble string
	wrote   time.Time
}

// resume makes the stream continue after the round that an event id names. If the id is empty, malformed or from an
// earlier process, the stream begins with the latest rounds, at most mostAtOnce.
func (s *stream) resume(id string) {
	boot, seq, _ := strings.Cut(id, ":")
	if n, err := strconv.ParseUint(seq, 10, 64); err == nil && boot == s.h.log.boot {
		s.round = n
	}
}

// step sends what has changed since the previous step. It returns an error if the client has gone or is too slow.
func (s *stream) step(r *http.Request) error {
	// Each step has its own deadline. The error is ignored, because some servers, for example in tests, cannot set a
	// deadline; such a server never disconnects slow clients.
	_ = s.to.SetWriteDeadline(time.Now().Add(patience))
	sent := s.version
	f, old := s.h.frame(r.Context())
	if err := r.Context().Err(); err != nil {
		return err
	}
	if f != nil {
		for _, part := range f.sections {
			if part.version <= sent {
				continue
			}
			s.version = max(s.version, part.version)
			if err := s.send(part.name, "", part.body); err != nil {
				return err
			}
		}
	}
	if old == nil {
		old = &trouble{}
	}
	if old.Error != s.trouble {
		s.trouble = old.Error
		if err := s.send("trouble", "", old); err != nil {
			return err
		}
	}
	if err := s.sendRounds(); err != nil {
		return err
	}
	if time.Since(s.wrote) > heartbeat {
		if _, err := fmt.Fprint(s.out, ": still here\n\n"); err != nil {
			return err
		}
		s.wrote = time.Now()
	}
	return s.to.Flush()
}

// sendRounds sends the new rounds. The first call sends an event even if there are no rounds, because the event tells
// the client which process it follows.
func (s *stream) sendRounds() error {
	rounds, missed, last := s.h.log.after(s.round, mostAtOnce)
	if len(rounds) == 0 && s.greeted {
		return nil
	}
	s.greeted, s.round = true, last
	return s.send("rounds", fmt.Sprintf("%s:%d", s.h.log.boot, last), roundsEvent{s.h.log.boot, rounds, missed})
}

func (s *stream) send(event, id string, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	s.wrote = time.Now()
	_, err = fmt.Fprintf(s.out, "event: %s\n%sdata: %s\n\n", event, id, body)
	return err
}
