package diskledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// recovery reads a folder and holds what was read.
type recovery struct {
	folder *folder
	files  listing
	// state is the state after the last change that was applied; nil: the folder has no ledger.
	state *orbit.State
	// history has all changes after floor. While logs are read it may exceed twice Limits.History by the groups that are
	// applied at once; afterwards it has at most Limits.History changes.
	history []orbit.Change
	floor   orbit.Revision
	// base is the number of the newest checkpoint, last is the number of the last log, end is how many bytes of that
	// log are valid.
	base, last uint64
	end        int64
	// changes is how many changes were applied.
	changes int64
	// cut is the length in bytes of an unfinished write after end. Its proposals were never answered.
	cut int64
	// checkpointBytes and logBytes are the sizes of the checkpoint and of the logs after it.
	checkpointBytes, logBytes int64
	// visit, if set, is called for each file and each record of changes that is read.
	visit func(Entry) error
}

// read reads the newest checkpoint and the logs after it. If there is neither a checkpoint nor a log, state stays nil.
func (r *recovery) read() (err error) {
	if r.files, err = r.folder.list(); err != nil {
		return err
	}
	if len(r.files.checkpoints) == 0 {
		for number := range r.files.logs {
			return &CorruptError{File: r.folder.path(nameOf(number, logEnd)), Why: "there is no checkpoint that it continues"}
		}
		return nil
	}
	r.base = slices.Max(slices.Collect(maps.Keys(r.files.checkpoints)))
	r.last = r.base - 1
	if err := r.readCheckpoint(); err != nil {
		return err
	}
	r.floor = r.state.Revision()
	for number := range r.files.logs {
		r.last = max(r.last, number)
	}
	if r.last < r.base {
		if r.base > 1 || r.floor > 0 { // only a new ledger's checkpoint comes before its log
			return &CorruptError{File: r.folder.path(nameOf(r.base, logEnd)), Why: "it is missing"}
		}
		return nil
	}
	return r.readLogs()
}

// readCheckpoint restores the state in the newest checkpoint.
func (r *recovery) readCheckpoint() (err error) {
	s, err := r.folder.openScanner(r.base, checkpointKind, checkpointEnd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	dump := &dumpStream{scanner: s}
	state := new(orbit.State)
	err = state.Restore(dump)
	var rejection *orbit.Rejection
	switch {
	case dump.err != nil: // the error of Restore is only its consequence
		return dump.err
	case errors.As(err, &rejection):
		return &CorruptError{File: s.path, Offset: dump.at, Why: err.Error(), cause: err}
	case err != nil:
		return err
	case state.Revision() != s.header.Revision:
		return s.corrupt(0, fmt.Sprintf("its state is at revision %d, its header says %d", state.Revision(), s.header.Revision))
	}
	r.state, r.checkpointBytes = state, s.size
	return r.show(Entry{File: s.path, Checkpoint: true, Bytes: s.size, Revision: state.Revision()})
}

// dumpStream reads the dump in a checkpoint, which is divided into records, as one stream.
type dumpStream struct {
	*scanner
	// rest is the part of the last record that Read has not returned yet.
	rest []byte
	// at is where the last record that was read begins.
	at int64
	// err is the error that ended reading; nil: reading goes on.
	err error
}

// Read implements io.Reader.
func (d *dumpStream) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		d.at = d.end
		rest, err := d.next()
		if errors.Is(err, errTorn) {
			err = d.corrupt(d.end, errTorn.Error())
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				d.err = err
			}
			return 0, err
		}
		d.rest = rest
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// readLogs applies the logs after the checkpoint. The header of each log says how many bytes of the previous one are
// valid. All of these must be readable; what follows them is an unfinished write, and is not read. The last log ends at
// its last valid record.
func (r *recovery) readLogs() error {
	var next *scanner
	defer func() {
		if next != nil {
			_ = next.close()
		}
	}()
	for number := r.base; number <= r.last; number++ {
		s := next
		next = nil
		if s == nil {
			var err error
			if s, err = r.openLog(number); err != nil {
				return err
			}
		}
		until := int64(-1)
		if number < r.last {
			var err error
			if next, err = r.openLog(number + 1); err != nil {
				return errors.Join(err, s.close())
			}
			until = next.header.Previous
		}
		if err := errors.Join(r.readLog(s, until), s.close()); err != nil {
			return err
		}
	}
	r.forget(r.state.Limits().History)
	return nil
}

// openLog opens a log that must be there.
func (r *recovery) openLog(number uint64) (*scanner, error) {
	if !r.files.logs[number] {
		return nil, &CorruptError{File: r.folder.path(nameOf(number, logEnd)), Why: "it is missing"}
	}
	return r.folder.openScanner(number, logKind, logEnd)
}

// applyAtOnce is how many changes are applied in one step.
const applyAtOnce = 4096

// readLog applies one log: its first until bytes or, if until is negative, all of its valid records.
func (r *recovery) readLog(s *scanner, until int64) error {
	if s.header.Revision != r.state.Revision() {
		return s.corrupt(0, fmt.Sprintf("it continues revision %d; the files before it end at %d", s.header.Revision, r.state.Revision()))
	}
	if err := r.show(Entry{File: s.path, Bytes: s.size, Revision: s.header.Revision}); err != nil {
		return err
	}
	p := replay{to: r, log: s, revision: r.state.Revision()}
	for s.end != until {
		at := s.end
		text, err := s.next()
		if until < 0 && errors.Is(err, io.EOF) {
			break
		}
		if until < 0 && errors.Is(err, errTorn) {
			if err := p.checkTail(); err != nil {
				return err
			}
			break
		}
		if errors.Is(err, errTorn) || errors.Is(err, io.EOF) || s.end > until && until >= 0 {
			return s.corrupt(at, fmt.Sprintf("no valid record; the next log says that %d bytes were written", until))
		}
		if err != nil {
			return err
		}
		if err := p.record(at, text); err != nil {
			return err
		}
	}
	if r.end = s.end; until < 0 {
		r.cut = s.size - s.end
	}
	r.logBytes += s.end
	return p.flush()
}

// replay applies the groups of one log to a recovery.
type replay struct {
	to  *recovery
	log *scanner
	// groups are the groups that were read and not yet applied, changes is how many changes they have.
	groups  []loggedGroup
	changes int
	// revision and seq are the revision and the Seq of the last change that was read.
	revision orbit.Revision
	seq      int
	// closed says that the record that closes the log was read.
	closed bool
}

// loggedGroup is one record of a log, and where it begins.
type loggedGroup struct {
	at      int64
	changes []orbit.Change
}

// checkTail returns an error if a later record shows that the bytes after the last valid record are damaged. Otherwise
// they are taken for an unfinished write.
func (p *replay) checkTail() error {
	at, found, err := p.log.successor(p.revision)
	if err != nil || !found {
		return err
	}
	return p.log.corrupt(p.log.end, fmt.Sprintf("no valid record, but a record that was written later is at byte %d", at))
}

// record decodes the record that begins at byte at and adds it to the groups to be applied. Its changes must continue
// the changes before it without a gap.
func (p *replay) record(at int64, text []byte) error {
	if p.closed {
		return p.log.corrupt(at, "a record follows the one that closes the log")
	}
	if bytes.HasPrefix(text, []byte(`{"closed":`)) {
		var last closing
		if err := json.Unmarshal(text, &last); err != nil || last.Closed != p.revision {
			return p.log.corrupt(at, fmt.Sprintf("the record that closes the log says revision %d; the last change has %d", last.Closed, p.revision))
		}
		p.closed = true
		return nil
	}
	group := loggedGroup{at: at}
	for line := range bytes.Lines(text) {
		var change orbit.Change
		if err := readChange(bytes.TrimSuffix(line, []byte("\n")), &change); err != nil {
			return &CorruptError{File: p.log.path, Offset: at, Why: err.Error(), cause: err}
		}
		isNext := change.Revision == p.revision+1 && change.Seq == 0 || change.Revision == p.revision && change.Seq == p.seq+1
		if !isNext || p.to.state.Revision() == change.Revision { // all changes of a revision are in one record
			return p.log.corrupt(at, fmt.Sprintf("change %d.%d follows %d.%d", change.Revision, change.Seq, p.revision, p.seq))
		}
		p.revision, p.seq = change.Revision, change.Seq
		group.changes = append(group.changes, change)
	}
	p.groups, p.changes = append(p.groups, group), p.changes+len(group.changes)
	if p.changes >= applyAtOnce {
		return p.flush()
	}
	return nil
}

// flush applies the groups that were read, all at once. If that fails, flush applies them one by one to find the group
// at fault.
func (p *replay) flush() error {
	r := p.to
	before := len(r.history)
	for _, g := range p.groups {
		r.history = append(r.history, g.changes...)
	}
	all := r.history[before:]
	state, err := r.state.Apply(all)
	if err != nil {
		state = r.state
		for _, g := range p.groups {
			if state, err = state.Apply(g.changes); err != nil {
				return &CorruptError{File: p.log.path, Offset: g.at, Why: err.Error(), cause: err}
			}
		}
	}
	for _, g := range p.groups {
		if err := r.show(Entry{File: p.log.path, Offset: g.at, Changes: g.changes}); err != nil {
			return err
		}
	}
	r.changes += int64(len(all))
	r.state = state
	if most := state.Limits().History; len(r.history) > 2*most { // not sooner, because forget copies the changes that it keeps
		r.forget(most)
	}
	p.groups, p.changes = p.groups[:0], 0
	return nil
}

// forget drops the oldest changes of the history so that at most that many (most) remain.
func (r *recovery) forget(most int) {
	if surplus := len(r.history) - most; surplus > 0 {
		r.floor = r.history[surplus-1].Revision
		r.history = append([]orbit.Change(nil), r.history[surplus:]...)
	}
}

// show calls visit, if it is set.
func (r *recovery) show(e Entry) error {
	if r.visit == nil {
		return nil
	}
	return r.visit(e)
}
