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
	// patience is how long a client may take to read one event before it is dropped.
	patience = 10 * time.Second
	// heartbeat is how often a client is sent something, if only to learn that it has gone.
	heartbeat = 15 * time.Second
	// mostAtOnce is how many rounds one event tells.
	mostAtOnce = 50
)

// serveEvents sends what is new as server-sent events: "overview", "queue", "rules" and "engines" with the whole section when it has
// changed, "rounds" with the rounds since the last one, and "trouble" if the ledger cannot be read. Its id is that of the last round, with
// which a client that comes back goes on.
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
	w.Header().Set("X-Accel-Buffering", "no") // proxies are to pass events on at once
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

// enter counts a client in, unless there are as many as may be.
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
	if h.clients++; h.clients == 1 {
		h.log.look(true)
	}
	return true
}

func (h *Handler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients--; h.clients == 0 {
		h.log.look(false)
	}
}

// stream is what one client is sent.
type stream struct {
	h   *Handler
	out http.ResponseWriter
	to  *http.ResponseController
	// The newest version of a section, and the last round, that it was sent.
	version, round uint64
	greeted        bool
	trouble        string
	wrote          time.Time
}

// resume goes on behind a round of this process; after a restart it begins with the first that is kept.
func (s *stream) resume(id string) {
	boot, seq, _ := strings.Cut(id, ":")
	if n, err := strconv.ParseUint(seq, 10, 64); err == nil && boot == s.h.log.boot {
		s.round = n
	}
}

// step sends what is new. An error says that the client is gone, or too slow.
func (s *stream) step(r *http.Request) error {
	// Every event gets its time anew. A server that cannot set it, as in some tests, never drops slow clients.
	_ = s.to.SetWriteDeadline(time.Now().Add(patience))
	sent := s.version
	f, err := s.h.frame(r.Context())
	switch {
	case err != nil && r.Context().Err() != nil:
		return err
	case err != nil:
		if text := textOf(err); text != s.trouble {
			s.trouble = text
			if err := s.send("trouble", "", map[string]string{"error": text}); err != nil {
				return err
			}
		}
	default:
		s.trouble = ""
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

// sendRounds sends the rounds that are new; at first it sends also that there are none, so that the client knows the process.
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
