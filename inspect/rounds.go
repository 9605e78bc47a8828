package inspect

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// These limits bound the memory for rounds, however long the process runs.
const (
	mostRounds   = 200  // of all engines together
	mostReceipts = 16   // of one round
	mostSteps    = 6    // of one proposal
	mostEngines  = 100  // with sums of their own; later engines have none
	mostMakers   = 1024 // prefixes of proposal ids whose engine is known
	mostText     = 400  // bytes of one text
	mostNotes    = 8
)

// round is what the page shows of one pass of an engine.
type round struct {
	Seq        uint64         `json:"seq"`
	Engine     string         `json:"engine"`
	At         int64          `json:"at"`
	View       orbit.Revision `json:"view"`
	Pending    int            `json:"pending"`
	Proposed   int            `json:"proposed"`
	Committed  int            `json:"committed"`
	Conflicts  int            `json:"conflicts"`
	Infeasible int            `json:"infeasible,omitempty"`
	Invalid    int            `json:"invalid,omitempty"`
	Unknown    int            `json:"unknown,omitempty"`
	Failed     int            `json:"failed,omitempty"`
	Unplaced   int            `json:"unplaced,omitempty"`
	Parked     int            `json:"parked,omitempty"`
	// Placed counts the placements of the committed proposals; Evicted and Moved are those of the round.
	Placed  int `json:"placed,omitempty"`
	Evicted int `json:"evicted,omitempty"`
	Moved   int `json:"moved,omitempty"`
	// Viewing, Planning and Proposing are the times that the stages of the pass took, in microseconds.
	Viewing   int64     `json:"viewing"`
	Planning  int64     `json:"planning"`
	Proposing int64     `json:"proposing"`
	Receipts  []receipt `json:"receipts,omitempty"`
	More      int       `json:"more,omitempty"`
	Errors    []string  `json:"errors,omitempty"`
	Notes     []note    `json:"notes,omitempty"`
}

type note struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// receipt describes a proposal and its outcome.
type receipt struct {
	Outcome  string         `json:"outcome"`
	Revision orbit.Revision `json:"revision,omitempty"`
	Steps    []deed         `json:"steps"`
	More     int            `json:"more,omitempty"`
	// The fields below are set only for a proposal that was not committed.
	Reason    string         `json:"reason,omitempty"`
	Bet       string         `json:"bet,omitempty"`
	Node      orbit.NodeID   `json:"node,omitempty"`
	Dimension string         `json:"dimension,omitempty"`
	Want      int64          `json:"want,omitempty"`
	Free      int64          `json:"free,omitempty"`
	TakenAt   orbit.Revision `json:"takenAt,omitempty"`
	// Rival names the engine that has won a conflict, or is elsewhere; empty: the ledger does not know which proposal has won.
	Rival string `json:"rival,omitempty"`
	// takenBy is the proposal that has won; zero: there is none, or it is not known.
	takenBy orbit.ProposalID
}

// elsewhere is the Rival if none of the engines whose passes the page knows has won.
const elsewhere = "another process or client"

// deed describes one commitment of a proposal.
type deed struct {
	Does    string          `json:"does"`
	Capsule orbit.CapsuleID `json:"capsule,omitempty"`
	Gang    orbit.GangID    `json:"gang,omitempty"`
	Node    orbit.NodeID    `json:"node,omitempty"`
	For     string          `json:"for,omitempty"`
}

// engine has the sums over all passes of an engine since the process started, and its last pass.
type engine struct {
	Name       string `json:"name"`
	Passes     int    `json:"passes"`
	Committed  int    `json:"committed"`
	Conflicts  int    `json:"conflicts"`
	Infeasible int    `json:"infeasible"`
	Errors     int    `json:"errors"`
	Placed     int    `json:"placed"`
	Evicted    int    `json:"evicted"`
	Moved      int    `json:"moved"`
	Last       round  `json:"last"`
	// Standby says that the engine does not run in this process; another process may run it.
	Standby bool `json:"standby,omitempty"`
	// Silent says that the engine runs and makes no passes, not even idle ones; Passed is when its last pass ended, in
	// milliseconds since 1970, or 0 if it has made none.
	Silent bool  `json:"silent,omitempty"`
	Passed int64 `json:"passed,omitempty"`
	// by is the engine that made the last pass; nil if the importer has made up the round.
	by *orbit.Engine
}

// roundLog keeps the latest rounds of all engines, and the sums of each engine.
type roundLog struct {
	// boot is a random id of this process. Clients use it to tell its rounds from those of an earlier process.
	boot string

	// mu guards the fields below.
	mu sync.Mutex
	// rounds has the latest rounds, oldest first, and seq counts all rounds since the process started.
	rounds []round
	seq    uint64
	names  []string
	byName map[string]*engine
	// makers maps the first eight bytes of the ids of committed proposals to the name of the engine. All ids that one engine sets begin
	// with the same eight bytes.
	makers map[[8]byte]string
}

func (l *roundLog) start(engines []*orbit.Engine) {
	var boot [6]byte
	_, _ = rand.Read(boot[:]) // never fails
	l.boot = hex.EncodeToString(boot[:])
	l.byName, l.makers = map[string]*engine{}, map[[8]byte]string{}
	for _, by := range engines {
		if by == nil {
			continue
		}
		if e := l.of(clip(by.Name)); e != nil {
			e.by = by
		}
	}
}

// of returns the sums of an engine; nil: there are too many engines.
func (l *roundLog) of(name string) *engine {
	e := l.byName[name]
	if e == nil && len(l.names) < mostEngines {
		e = &engine{Name: name}
		l.byName[name] = e
		l.names = append(l.names, name)
	}
	return e
}

// Round records a pass of an engine. Set it as the OnRound of each engine, or call it from your own OnRound. The memory
// that it keeps is bounded, and it returns after some microseconds.
func (h *Handler) Round(r orbit.Round) {
	h.init()
	out := round{
		Engine: clip(r.Engine), At: time.Now().UnixMilli(), View: r.View, Pending: r.Pending, Proposed: r.Proposed, Committed: r.Committed, Conflicts: r.Conflicts,
		Infeasible: r.Infeasible, Invalid: r.Invalid, Unknown: r.Unknown, Failed: r.Failed, Unplaced: len(r.Unplaced), Parked: r.Parked, Evicted: r.Evicted, Moved: r.Moved,
		Viewing: r.Viewing.Microseconds(), Planning: r.Planning.Microseconds(), Proposing: r.Proposing.Microseconds(),
	}
	for _, err := range r.Errors[:min(len(r.Errors), 3)] {
		out.Errors = append(out.Errors, textOf(err))
	}
	for _, n := range r.Notes[:min(len(r.Notes), mostNotes)] {
		out.Notes = append(out.Notes, noteOf(n))
	}
	h.log.add(&r, out)
}

// add appends a round to the log, and drops the oldest one if the log is full.
func (l *roundLog) add(r *orbit.Round, out round) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(r, &out)
	l.seq++
	out.Seq = l.seq
	if len(l.rounds) == mostRounds {
		copy(l.rounds, l.rounds[1:])
		l.rounds = l.rounds[:mostRounds-1]
	}
	l.rounds = append(l.rounds, out)
	l.total(r, &out)
}

// total adds a round to the sums of its engine.
func (l *roundLog) total(r *orbit.Round, out *round) {
	e := l.of(out.Engine)
	if e == nil {
		return
	}
	e.by = r.By
	e.Passes++
	e.Committed += out.Committed
	e.Conflicts += out.Conflicts
	e.Infeasible += out.Infeasible
	e.Errors += len(r.Errors)
	e.Placed += out.Placed
	e.Evicted += out.Evicted
	e.Moved += out.Moved
	e.Last = *out
	e.Last.Receipts = nil
}

// settle fills in the receipts of a round, at most mostReceipts. Conflicts come first, then other proposals that were
// not committed, then commits that evict, and then other commits.
func (l *roundLog) settle(r *orbit.Round, out *round) {
	var by [4][]receipt
	for i := range r.Settled {
		s := &r.Settled[i]
		rank := 1
		switch {
		case errors.Is(s.Outcome.Err, orbit.ErrConflict):
			rank = 0
		case s.Outcome.Err == nil:
			if rank = 3; out.count(&s.Proposal) {
				rank = 2
			}
			l.made(&s.Proposal, out.Engine)
		}
		if len(by[rank]) < mostReceipts {
			by[rank] = append(by[rank], l.receipt(s))
		}
	}
	for _, some := range by {
		out.Receipts = append(out.Receipts, some[:min(len(some), mostReceipts-len(out.Receipts))]...)
	}
	out.More = len(r.Settled) - len(out.Receipts)
}

// count adds what a committed proposal places to the round, and reports whether the proposal evicts or moves others.
func (r *round) count(p *orbit.Proposal) (evicts bool) {
	for _, do := range p.Do {
		switch do.(type) {
		case orbit.Place:
			r.Placed++
		case orbit.Evict:
			evicts = true
		}
	}
	return evicts
}

// made records which engine made a committed proposal, so that a receipt can name the winner of a conflict.
func (l *roundLog) made(p *orbit.Proposal, engine string) {
	by := [8]byte(p.ID[:8])
	if p.ID.IsZero() || l.makers[by] == engine {
		return
	}
	if len(l.makers) >= mostMakers { // an importer may start any number of engines
		clear(l.makers)
	}
	l.makers[by] = engine
}

// receipt returns the receipt of a settled proposal, without its Rival.
func (l *roundLog) receipt(s *orbit.Settled) receipt {
	r := receipt{Revision: s.Outcome.Revision, Outcome: outcomeOf(s.Outcome.Err)}
	for _, do := range s.Proposal.Do {
		if len(r.Steps) == mostSteps {
			r.More++
			continue
		}
		r.Steps = append(r.Steps, deedOf(do))
	}
	if s.Outcome.Err == nil {
		return r
	}
	lost := (*orbit.Rejection)(nil)
	if !errors.As(s.Outcome.Err, &lost) {
		r.Reason = textOf(s.Outcome.Err)
		return r
	}
	r.Reason, r.Node, r.Dimension, r.Want, r.Free, r.TakenAt = clip(lost.Reason), lost.Node, lost.Dimension, lost.Want, lost.Free, lost.TakenAt
	if lost.Bet != nil {
		r.Bet = strings.TrimPrefix(fmt.Sprintf("%T", lost.Bet), "orbit.")
	}
	if errors.Is(lost.Kind, orbit.ErrConflict) {
		r.takenBy = lost.TakenBy
	}
	return r
}

// after returns the rounds after number seq. If there are more than most, or some have been dropped, it returns the
// latest ones, and missed counts the others. The result last is the number of the last round.
func (l *roundLog) after(seq uint64, most int) (out []round, missed, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq > l.seq {
		seq = 0
	}
	n := min(uint64(len(l.rounds)), uint64(most), l.seq-seq)
	out = append([]round{}, l.rounds[uint64(len(l.rounds))-n:]...)
	for i := range out {
		out[i].Receipts = l.withRivals(out[i].Receipts)
	}
	return out, l.seq - seq - n, l.seq
}

// withRivals returns a copy of receipts that names the winners. It is called when the receipts are read and not when they are recorded,
// because the pass that has won may be recorded after the one that has lost.
func (l *roundLog) withRivals(receipts []receipt) []receipt {
	out := slices.Clone(receipts)
	for i := range out {
		if r := &out[i]; !r.takenBy.IsZero() {
			r.Rival = cmp.Or(l.makers[[8]byte(r.takenBy[:8])], elsewhere)
		}
	}
	return out
}

// silentAfter is how long an engine may take from the end of a pass to the end of the next one, beside the longest wait between
// them, until it counts as one that makes no passes. A Plan may take 10 s by default.
const silentAfter = 30 * time.Second

// hears looks whether the engine runs and when it has made its last pass, and sets Standby, Silent and Passed.
func (e *engine) hears() {
	if e.Standby, e.Silent, e.Passed = false, false, 0; e.by == nil {
		return
	}
	last := e.by.LastPass()
	e.Standby = !e.by.Running()
	if e.Silent = !e.Standby && time.Since(last) > silentAfter+e.by.Backoff.Max; e.Silent && !last.IsZero() {
		e.Passed = last.UnixMilli()
	}
}

// silent returns which engines stand by and which make no passes, as a text.
func (l *roundLog) silent() string {
	var names []string
	for _, e := range l.engines() {
		if e.Silent || e.Standby {
			names = append(names, fmt.Sprint(e.Name, e.Standby))
		}
	}
	return strings.Join(names, "\n")
}

// engines returns the sums of the engines: those of Handler.Engines first, and others in the order of their first rounds.
func (l *roundLog) engines() []engine {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]engine, 0, len(l.names))
	for _, name := range l.names {
		e := *l.byName[name]
		e.hears()
		out = append(out, e)
	}
	return out
}

// known returns the engines.
func (l *roundLog) known() (out []*orbit.Engine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.names {
		if e := l.byName[name]; e.by != nil {
			out = append(out, e.by)
		}
	}
	return out
}

// count returns how many rounds there have been since the process started.
func (l *roundLog) count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq
}
