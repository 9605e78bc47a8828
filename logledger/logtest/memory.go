package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// Store is the store of a log in memory. Its zero value is an empty log. Each process, or each test that stands for one,
// has a handle of its own ([Store.Open]).
type Store struct {
	mu sync.Mutex
	// entries are those after first.
	entries [][]byte
	first   logledger.Index
	posts   []logledger.Post
	// checkpoint is the newest checkpoint; nil: there is none.
	checkpoint *checkpoint
	handles    []*Handle
	// PageBytes bounds the entries in one page; 0: 1 MiB. A page has at least one entry.
	PageBytes int
}

// checkpoint is a stored checkpoint.
type checkpoint struct {
	at   logledger.Index
	data []byte
}

// Faults are what goes wrong with the calls of a [Handle]. Chances are from 0 to 1.
type Faults struct {
	// Latency is how long a call takes to reach the store, and again until its answer is there. Jitter is the most that is
	// added to it by chance.
	Latency, Jitter time.Duration
	// Lost is the chance that a change is made and its answer is lost. Dropped is the chance that it is not made, and that
	// nobody says so. Refused is the chance that a call fails at once, and says that nothing was done.
	Lost, Dropped, Refused float64
	// Late is the chance that a change is made only some time after its caller was told that its outcome is unknown.
	// Doubled is the chance that an Append arrives a second time, later, as when a client sends it again by itself.
	Late, Doubled float64
	// After is the longest time until a Late or Doubled change is made; default 10 × Latency, at least a millisecond.
	After time.Duration
	// Seed is the seed of all chances.
	Seed uint64
}

// Handle is a [logledger.Poster] on a [Store]. All faults are its own: they do not concern other handles.
type Handle struct {
	store   *Store
	faults  Faults
	changed chan struct{}

	mu sync.Mutex // guards what follows
	// cut says that the store cannot be reached.
	cut    bool
	chance *rand.Rand
	// paused is closed when the handle goes on; nil: it is not paused.
	paused chan struct{}
}

var _ logledger.Poster = (*Handle)(nil)

// errLost is the error of a call whose answer was lost.
var errLost = errors.New("logtest: no answer")

// Open returns a handle.
func (s *Store) Open(f Faults) *Handle {
	h := &Handle{store: s, faults: f, changed: make(chan struct{}, 1), chance: rand.New(rand.NewPCG(f.Seed, 1))}
	if h.faults.After == 0 {
		h.faults.After = max(10*f.Latency, time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles = append(s.handles, h)
	return h
}

// Cut says whether the handle can reach the store. While it cannot, calls take until their context ends, at most a second,
// and then fail.
func (h *Handle) Cut(cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = cut
	if !cut {
		h.signal()
	}
}

// Pause stops the handle: all calls wait until Resume, as those of a process that was stopped by a signal.
func (h *Handle) Pause() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused == nil {
		h.paused = make(chan struct{})
	}
}

// Resume ends a pause.
func (h *Handle) Resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.paused != nil {
		close(h.paused)
		h.paused = nil
		h.signal()
	}
}

// signal puts a token into the channel of changes.
func (h *Handle) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// tell signals all handles but one. It requires the store's mu.
func (s *Store) tell(but *Handle) {
	for _, h := range s.handles {
		if h != but {
			h.later(h.faults.Latency, h.signal)
		}
	}
}

// later calls f after a while, or now if that is 0.
func (h *Handle) later(d time.Duration, f func()) {
	if d == 0 {
		f()
		return
	}
	time.AfterFunc(d, f)
}

// fate is what happens to one call.
type fate struct {
	there, back                           time.Duration
	lost, dropped, refused, late, doubled bool
	after                                 time.Duration
}

// fate draws what happens to a call.
func (h *Handle) fate() fate {
	h.mu.Lock()
	defer h.mu.Unlock()
	hit := func(p float64) bool { return p > 0 && h.chance.Float64() < p }
	way := func() time.Duration {
		if h.faults.Jitter == 0 {
			return h.faults.Latency
		}
		return h.faults.Latency + time.Duration(h.chance.Int64N(int64(h.faults.Jitter)))
	}
	return fate{way(), way(), hit(h.faults.Lost), hit(h.faults.Dropped), hit(h.faults.Refused), hit(h.faults.Late), hit(h.faults.Doubled),
		1 + time.Duration(h.chance.Int64N(int64(h.faults.After)))}
}

// ready waits while the handle is paused, and reports whether the store can be reached.
func (h *Handle) ready(ctx context.Context) error {
	for {
		h.mu.Lock()
		paused, cut := h.paused, h.cut
		h.mu.Unlock()
		switch {
		case paused != nil:
			select {
			case <-paused:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		case cut:
			sleep(ctx, time.Second)
			return errLost
		}
		return ctx.Err()
	}
}

// read makes a call that changes nothing.
func (h *Handle) read(ctx context.Context, f func() error) error {
	to := h.fate()
	err := h.ready(ctx)
	if err == nil && (to.refused || to.lost || to.dropped) {
		err = errLost
	}
	sleep(ctx, to.there)
	if err == nil {
		h.store.mu.Lock()
		err = f()
		h.store.mu.Unlock()
	} else {
		err = fmt.Errorf("%w: %w", orbit.ErrUnavailable, err)
	}
	sleep(ctx, to.back)
	return err
}

// write makes a call that changes the store: all or nothing.
func (h *Handle) write(ctx context.Context, f func() error) error { return h.suffer(ctx, h.fate(), f) }

// suffer is write with a given fate.
func (h *Handle) suffer(ctx context.Context, to fate, f func() error) error {
	if to.refused {
		return fmt.Errorf("%w: %w", orbit.ErrUnavailable, errLost)
	}
	if err := h.ready(ctx); err != nil {
		return err
	}
	sleep(ctx, to.there)
	do := func() error {
		h.store.mu.Lock()
		defer h.store.mu.Unlock()
		return f()
	}
	if to.doubled {
		defer h.later(to.after, func() { _ = do() })
	}
	switch {
	case to.dropped:
		return errLost
	case to.late:
		h.later(to.after, func() { _ = do() })
		return errLost
	}
	err := do()
	if sleep(ctx, to.back); to.lost || ctx.Err() != nil {
		return errLost
	}
	if err := h.ready(ctx); err != nil {
		return err
	}
	return err
}

// Append implements [logledger.Log].
func (h *Handle) Append(ctx context.Context, a logledger.Append) ([]logledger.Post, error) {
	s, data, settled := h.store, bytes.Clone(a.Data), slices.Clone(a.Settled)
	var first sync.Once // the entry may come again when the answer has been read
	var posts []logledger.Post
	err := h.write(ctx, func() error {
		if a.Index != s.tail()+1 {
			return logledger.ErrTaken
		}
		s.entries = append(s.entries, data)
		s.posts = slices.DeleteFunc(slices.Clone(s.posts), func(p logledger.Post) bool { return slices.Contains(settled, p.PostID) })
		first.Do(func() { posts = s.posts })
		s.tell(h)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return posts, nil
}

// tail returns the index of the newest entry. It requires mu.
func (s *Store) tail() logledger.Index { return s.first + logledger.Index(len(s.entries)) }

// Post implements [logledger.Poster].
func (h *Handle) Post(ctx context.Context, p logledger.Post) error {
	s, to := h.store, h.fate()
	to.doubled = false
	p.Data = bytes.Clone(p.Data)
	return h.suffer(ctx, to, func() error {
		if !slices.ContainsFunc(s.posts, func(q logledger.Post) bool { return q.PostID == p.PostID }) {
			s.posts = append(slices.Clip(s.posts), p)
			s.tell(h)
		}
		return nil
	})
}

// Read implements [logledger.Log].
func (h *Handle) Read(ctx context.Context, after logledger.Index) (page logledger.Page, err error) {
	s := h.store
	err = h.read(ctx, func() error {
		if after < s.first {
			return logledger.ErrTrimmed
		}
		if after > s.tail() {
			return nil
		}
		limit := s.PageBytes
		if limit == 0 {
			limit = 1 << 20
		}
		rest := s.entries[after-s.first:]
		for size := 0; len(rest) > 0 && (len(page.Entries) == 0 || size+len(rest[0]) <= limit); rest = rest[1:] {
			page.Entries = append(page.Entries, rest[0])
			size += len(rest[0])
		}
		if page.More = len(rest) > 0; !page.More {
			page.Posts = s.posts
		}
		return nil
	})
	return page, err
}

// Tail implements [logledger.Log].
func (h *Handle) Tail(ctx context.Context) (tail logledger.Index, err error) {
	err = h.read(ctx, func() error {
		tail = h.store.tail()
		return nil
	})
	return tail, err
}

// Changed implements [logledger.Log].
func (h *Handle) Changed() <-chan struct{} { return h.changed }

// Checkpoint implements [logledger.Log].
func (h *Handle) Checkpoint(ctx context.Context) (at logledger.Index, r io.ReadCloser, err error) {
	err = h.read(ctx, func() error {
		c := h.store.checkpoint
		if c == nil {
			return logledger.ErrNoCheckpoint
		}
		at, r = c.at, io.NopCloser(bytes.NewReader(c.data))
		return nil
	})
	return at, r, err
}

// SaveCheckpoint implements [logledger.Log].
func (h *Handle) SaveCheckpoint(ctx context.Context, at logledger.Index, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	s := h.store
	return h.write(ctx, func() error {
		if s.checkpoint != nil && s.checkpoint.at >= at {
			return logledger.ErrTaken
		}
		s.checkpoint = &checkpoint{at, b.Bytes()}
		return nil
	})
}

// Trim implements [logledger.Log].
func (h *Handle) Trim(ctx context.Context, upTo logledger.Index) error {
	s := h.store
	return h.write(ctx, func() error {
		if upTo = min(upTo, max(s.tail(), 1)-1); upTo > s.first {
			s.entries, s.first = slices.Clone(s.entries[upTo-s.first:]), upTo
		}
		return nil
	})
}

// Close implements [logledger.Log].
func (h *Handle) Close() error {
	s := h.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles = slices.DeleteFunc(s.handles, func(o *Handle) bool { return o == h })
	return nil
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
