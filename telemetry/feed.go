package telemetry

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// This file sends the reports of a board to the board of another process.

const (
	feedFormat = 2
	feedBatch  = 10 * time.Millisecond // the wait after a change for further changes, which are sent with it
	feedEvery  = time.Second           // the interval at which new heartbeats are sent, or an empty line if there are none
	feedSilent = 10 * time.Second      // how long the other end may send nothing, or accept nothing
)

// Feed sends all reports of the board, and then each newer one, to a board that runs [Board.Follow] at the other end of
// the connection. It returns nil when ctx ends. Feed sends a report as its difference from the report of the same node
// that it has sent before: at once if the report is a change, within a second if only the heartbeat is newer. A slow
// reader gets only the newest report of each node.
//
// Feed returns an error when the connection fails. To continue, call it with a new connection, which begins with all
// reports. If the connection has deadlines, as a net.Conn has, it fails when it accepts nothing for 10 s. If it can be
// closed, Feed closes it when ctx ends.
//
// If nodes may report to any of several processes, let the processes feed each other in both directions. A board also
// passes on the reports that it has received from other boards, so not every pair of boards needs a connection. A
// report that comes back to a board is not newer than the known one, so it is ignored and not passed on. Claims are not
// sent.
func (b *Board) Feed(ctx context.Context, to io.Writer) error {
	defer closeAfter(ctx, to)()
	f := feeder{board: b, sent: map[orbit.NodeID]*fed{}}
	out := bufio.NewWriter(timely{to})
	lines := json.NewEncoder(out)
	_ = lines.Encode(feedLine{Board: feedFormat}) // Flush returns the error
	for ctx.Err() == nil {
		for _, line := range f.news() {
			if err := lines.Encode(line); err != nil {
				return feedError(ctx, "feed", err)
			}
		}
		if err := out.Flush(); err != nil {
			return feedError(ctx, "feed", err)
		}
		f.wait(ctx)
	}
	return nil
}

// timely is a connection whose writes fail unless each is accepted within feedSilent, if the connection has deadlines.
type timely struct{ to io.Writer }

// Write implements io.Writer.
func (t timely) Write(p []byte) (int, error) {
	if d, ok := t.to.(interface{ SetWriteDeadline(t time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Now().Add(feedSilent))
	}
	return t.to.Write(p)
}

// Follow receives the reports that another board sends with [Board.Feed]. It returns nil when ctx ends. Follow stores
// the reports that are newer than the known ones, within the bounds that hold for the reports of nodes, except
// PerSecond. If the other board forgets a node, this board forgets it too, unless it has a newer report.
//
// Follow refreshes no terms: the process to which the node has reported does. So if the board has Leases, these must
// share their refreshes ([lease.Keeper.Refreshes]). The board stores a report only once its Leases know the lease of
// the node.
//
// Follow returns an error when the connection ends or fails. The error wraps [orbit.ErrInvalid] if the data are not
// what Feed sends. Reports that were stored before are kept. If the connection has deadlines, it fails when nothing
// arrives for 10 s. If it can be closed, Follow closes it when ctx ends.
//
// [lease.Keeper.Refreshes]: https://pkg.go.dev/github.com/orbitsched/orbit/lease#Keeper
func (b *Board) Follow(ctx context.Context, from io.Reader) error {
	defer closeAfter(ctx, from)()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, b.longestLine())
	f := follower{board: b, nodes: map[int]*orbit.Report{}, early: map[int]bool{}}
	for {
		if d, ok := from.(interface{ SetReadDeadline(t time.Time) error }); ok {
			_ = d.SetReadDeadline(time.Now().Add(feedSilent))
		}
		if !lines.Scan() {
			return feedError(ctx, "follow", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
		}
		if err := f.read(lines.Bytes()); err != nil {
			return err
		}
	}
}

// closeAfter closes the connection when ctx ends, unless stop is called before. It does nothing if the connection is no
// io.Closer.
func closeAfter(ctx context.Context, connection any) (stop func()) {
	c, ok := connection.(io.Closer)
	if !ok {
		return func() {}
	}
	cancel := context.AfterFunc(ctx, func() { _ = c.Close() })
	return func() { cancel() }
}

// feedError wraps the error of a connection. It returns nil if ctx has ended, because then Feed or Follow has closed
// the connection itself.
func feedError(ctx context.Context, what string, err error) error {
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("%w: %w", orbit.ErrInvalid, err)
	}
	if ctx.Err() == nil {
		return fmt.Errorf("telemetry: %s another board: %w", what, err)
	}
	return nil
}

// longestLine returns the greatest length of a line in bytes: that of a report with MaxWords words of maxWordBytes, in
// which JSON escapes every byte as six.
func (b *Board) longestLine() int {
	words := cmp.Or(b.MaxWords, defaultWords)
	if words < 0 {
		words = 1 << 18
	}
	return 1<<12 + words*(6*maxWordBytes+32)
}

// feedLine is one line of a feed, in JSON: the difference of a node's report from the last report of the node that was
// sent on the same connection. A line without a number says only that the other end is alive.
type feedLine struct {
	// Board is the version of the format; in the first line only.
	Board int `json:"board,omitempty"`
	// Number stands for the node on this connection; numbers count from 1. Node is the node's id, in the node's first
	// line only.
	Number int          `json:"n,omitempty"`
	Node   orbit.NodeID `json:"node,omitempty"`
	// Gone says that the board has forgotten the node. The number is not used again.
	Gone bool `json:"gone,omitempty"`
	// At is the heartbeat, in nanoseconds since 1970 by the node's clock. The fields below Age are those of the report that
	// have changed.
	At int64 `json:"at,omitempty"`
	// Age is how long ago a board has received the report from the node, in nanoseconds: no clock means anything to
	// another process.
	Age       time.Duration    `json:"age,omitempty"`
	Term      *orbit.Revision  `json:"term,omitempty"`
	Usage     *orbit.Resources `json:"usage,omitempty"`
	CPU       *float64         `json:"cpu,omitempty"`
	Slots     *int             `json:"slots,omitempty"`
	Warm      map[string]int   `json:"warm,omitempty"` // the templates whose count has changed; -1: no longer listed
	Templates *[]string        `json:"templates,omitempty"`
	Volumes   *[]string        `json:"volumes,omitempty"`
}

// feeder is the sending end of a connection.
type feeder struct {
	board   *Board
	version uint64    // the version of the board up to which changes have been sent
	forgets uint64    // the value of Board.forgets up to which forgotten nodes have been sent
	scanned time.Time // when the heartbeats of all nodes were last compared
	sent    map[orbit.NodeID]*fed
	next    int // the highest number of a node so far
}

// fed is the last report of a node that was sent, and its age at that time. Entry is the node's entry in the board. It tells whether the board
// has forgotten the node, even if the node has reported again since: then the board has made a new entry.
type fed struct {
	number int
	report orbit.Report
	age    time.Duration
	entry  *entry
}

// news returns the lines for all changes that have not been sent. The lines of forgotten nodes come first, because they
// make room on the other board for new nodes, whose number is bounded.
func (f *feeder) news() (lines []feedLine) {
	reports, gone := f.read(time.Since(f.scanned) >= feedEvery)
	for _, number := range gone {
		lines = append(lines, feedLine{Number: number, Gone: true})
	}
	for i := range reports {
		lines = append(lines, f.difference(&reports[i]))
	}
	if len(lines) == 0 {
		lines = append(lines, feedLine{})
	}
	return lines
}

// read returns the reports to send and the numbers of the nodes that the board has forgotten. It returns the reports
// with another heartbeat than the one that was sent: with all, of all nodes, otherwise only of the nodes that have
// changed.
func (f *feeder) read(all bool) (reports []fed, gone []int) {
	b := f.board
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.followLeases()
	if f.forgets != b.forgets {
		f.forgets = b.forgets
		for node, s := range f.sent {
			if b.nodes[node] != s.entry {
				gone = append(gone, s.number)
				delete(f.sent, node)
			}
		}
	}
	for e := b.ring.next; e != nil && e != &b.ring && (all || e.version > f.version); e = e.next {
		if s := f.sent[e.report.Node]; (s == nil || !s.report.At.Equal(e.report.At) || s.report.Term != e.report.Term) && e.report.At.Unix() >= 0 {
			reports = append(reports, fed{report: e.report, age: now.Sub(e.report.Received), entry: e})
		}
	}
	f.version = b.version
	if all {
		f.scanned = time.Now()
	}
	return reports, gone
}

// difference returns the line for a report.
func (f *feeder) difference(news *fed) (line feedLine) {
	r := &news.report
	s := f.sent[r.Node]
	if s == nil {
		f.next++
		s = &fed{number: f.next, entry: news.entry}
		f.sent[r.Node] = s
		line.Node = r.Node
	}
	was := &s.report
	line.Number, line.At, line.Age = s.number, r.At.UnixNano(), news.age
	line.Term, line.Usage, line.CPU, line.Slots = changed(was.Term, r.Term), changed(was.Usage, r.Usage), changed(was.CPUPercent, r.CPUPercent), changed(was.FreeSlots, r.FreeSlots)
	line.Warm = changedWarm(was.Warm, r.Warm)
	line.Templates, line.Volumes = changedWords(was.Templates, r.Templates), changedWords(was.Volumes, r.Volumes)
	s.report = *r
	return line
}

func changed[T comparable](was, is T) *T {
	if was == is {
		return nil
	}
	return &is
}

func changedWarm(was, is map[string]int) map[string]int {
	if maps.Equal(was, is) {
		return nil
	}
	out := map[string]int{}
	for template, n := range is {
		if before, there := was[template]; !there || before != n {
			out[template] = n
		}
	}
	for template := range was {
		if _, there := is[template]; !there {
			out[template] = -1
		}
	}
	return out
}

func changedWords(was, is []string) *[]string {
	if slices.Equal(was, is) {
		return nil
	}
	words := append([]string{}, is...)
	return &words
}

// wait returns when heartbeats are due, or feedBatch after a change, so that further changes are sent together with it.
func (f *feeder) wait(ctx context.Context) {
	waiting, cancel := context.WithDeadline(ctx, f.scanned.Add(feedEvery))
	defer cancel()
	if f.board.Wait(waiting, f.version) == nil {
		send.Pause(ctx, feedBatch)
	}
}

// follower is the receiving end of a connection.
type follower struct {
	board  *Board
	begun  bool
	newest int                   // the highest number of a node
	nodes  map[int]*orbit.Report // as the other board has them
	early  map[int]bool          // nodes whose report waits until their lease is known
	tried  time.Time             // when the reports in early were last tried
}

// read handles one line. After an error the connection is useless, because later lines build on the faulty one.
func (f *follower) read(text []byte) error {
	var line feedLine
	if err := json.Unmarshal(text, &line); err != nil {
		return fmt.Errorf("telemetry: follow another board: %w: line %.80q: %w", orbit.ErrInvalid, text, err)
	}
	if !f.begun {
		if f.begun = line.Board == feedFormat; !f.begun {
			return fmt.Errorf("telemetry: follow another board: %w: it sends format %d, this version reads %d", orbit.ErrInvalid, line.Board, feedFormat)
		}
		return nil
	}
	if time.Since(f.tried) >= feedEvery {
		f.tried = time.Now()
		for number := range f.early {
			f.take(number)
		}
	}
	if line.Number == 0 {
		return nil
	}
	if line.Node != "" {
		if most := cmp.Or(f.board.MaxNodes, defaultNodes); line.Number <= f.newest || most > 0 && len(f.nodes) >= most {
			return fmt.Errorf("telemetry: follow another board: %w: node %q has number %d after %d, and there are %d of at most %d nodes",
				orbit.ErrInvalid, line.Node, line.Number, f.newest, len(f.nodes), most)
		}
		f.newest = line.Number
		f.nodes[line.Number] = &orbit.Report{Node: line.Node}
	}
	r := f.nodes[line.Number]
	if r == nil {
		return fmt.Errorf("telemetry: follow another board: %w: node number %d has no name", orbit.ErrInvalid, line.Number)
	}
	if line.Gone {
		delete(f.nodes, line.Number)
		delete(f.early, line.Number)
		f.board.forgetFed(r)
		return nil
	}
	line.apply(r)
	r.Received = f.board.now().Add(-max(0, line.Age))
	f.take(line.Number)
	return nil
}

// take gives the report of a node to the board, or notes that it has to wait until the board's Leases know the node's
// lease.
func (f *follower) take(number int) {
	r := f.nodes[number]
	if b := f.board; b.Leases != nil && !b.Leases.Known(string(r.Node)) {
		f.early[number] = true
		return
	}
	delete(f.early, number)
	f.board.takeFed(*r)
}

// apply changes the node's previous report into the report that the line describes.
func (l *feedLine) apply(r *orbit.Report) {
	r.At = time.Unix(0, l.At)
	set(&r.Term, l.Term)
	set(&r.Usage, l.Usage)
	set(&r.CPUPercent, l.CPU)
	set(&r.FreeSlots, l.Slots)
	set(&r.Templates, l.Templates)
	set(&r.Volumes, l.Volumes)
	if r.Warm == nil && len(l.Warm) > 0 {
		r.Warm = map[string]int{}
	}
	for template, n := range l.Warm {
		if r.Warm[template] = n; n < 0 {
			delete(r.Warm, template)
		}
	}
}

func set[T any](field *T, to *T) {
	if to != nil {
		*field = *to
	}
}

// takeFed stores a report from another board if it is newer than the known one. It does not check the term: the board
// to which the node has reported has done so.
func (b *Board) takeFed(r orbit.Report) {
	refusal := b.malformed(&r)
	b.mu.Lock()
	defer b.mu.Unlock()
	now, e := b.now(), b.nodes[r.Node]
	if e != nil && !b.newer(&r, &e.report) {
		return // known already, from the node or from another board; perhaps it was sent from here
	}
	if most := cmp.Or(b.MaxNodes, defaultNodes); refusal == nil && e == nil && most > 0 && len(b.nodes) >= most {
		refusal = &Refusal{Kind: ErrFull}
	}
	if refusal != nil {
		*b.stats.of(refusal)++
		return
	}
	b.stats.Fed++
	b.take(e, &r, now)
}

// forgetFed forgets a node that another board has forgotten, unless this board has a newer report than last, the last
// report that the other board has sent of the node.
func (b *Board) forgetFed(last *orbit.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.nodes[last.Node]; e != nil && !b.newer(&e.report, last) {
		b.forget(last.Node)
	}
}
