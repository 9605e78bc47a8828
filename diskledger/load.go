package diskledger

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// openLog opens the log in a folder, and removes files that are not needed any more. What it finds is made durable first: a
// process that was killed between a write and its sync has left a record, or a file's name, that a failure of the power would
// take away again.
func openLog(f *folder) (*fileLog, error) {
	l, err := loadLog(f, true)
	if err != nil {
		return nil, err
	}
	if l.checkpoint == 0 {
		// The folder's entry in its parent must be on the disk before anything is committed in the folder, also if the folder was
		// there: an earlier Open may have made it and been killed before its own sync.
		if err := (&folder{fs: f.fs, dir: f.fs.PathDir(f.dir)}).sync(); err != nil {
			return nil, err
		}
	}
	return l, l.clean()
}

// loadLog reads which entries there are, and syncs what it has read if sync is set. It reads the headers of all logs that
// are needed, and the whole of the last one, to find where that ends.
func loadLog(f *folder, sync bool) (*fileLog, error) {
	r := loading{fileLog: &fileLog{folder: f, changed: make(chan struct{})}, sync: sync}
	defer r.close()
	files, err := f.list()
	if err == nil {
		err = r.findCheckpoint(files)
	}
	if err == nil {
		err = r.findLogs(files)
	}
	if err == nil {
		err = r.readLogs()
	}
	if err == nil && sync {
		err = f.sync()
	}
	if err != nil {
		return nil, err
	}
	return r.fileLog, nil
}

// loading is a log whose files are being found.
type loading struct {
	*fileLog
	sync bool
	// base is the header of the newest checkpoint.
	base header
	// logs are the logs that are needed, by number.
	logs []*scanner
}

// close closes the files.
func (r *loading) close() {
	for _, s := range r.logs {
		_ = s.close() // it was only read
	}
}

// missing returns the error for a file that is not there.
func (r *loading) missing(number uint64, end string) error {
	return &CorruptError{File: r.path(nameOf(number, end)), Why: "it is missing"}
}

// findCheckpoint reads the header of the newest checkpoint.
func (r *loading) findCheckpoint(files listing) error {
	if len(files.checkpoints) == 0 {
		return nil
	}
	r.checkpoint = slices.Max(slices.Collect(maps.Keys(files.checkpoints)))
	s, err := r.openScanner(r.checkpoint, checkpointKind, checkpointEnd)
	if err != nil {
		return err
	}
	r.base, r.at = s.header, s.header.Index
	return s.close()
}

// findLogs opens the logs from the newest one back to the one that continues the checkpoint.
func (r *loading) findLogs(files listing) error {
	old := r.base.Version == 1
	for n := range files.logs {
		r.last = max(r.last, n)
	}
	for n := r.last; files.logs[n]; n-- {
		s, err := r.openScanner(n, logKind, logEnd)
		if err != nil {
			return err
		}
		if s.isOld() && r.base.Version > 1 { // a checkpoint of today includes all logs of version 1; their removal was interrupted
			if err := s.close(); err != nil {
				return err
			}
			break
		}
		r.logs = slices.Insert(r.logs, 0, s)
		if s.header.Checkpoint > r.checkpoint {
			return r.missing(s.header.Checkpoint, checkpointEnd)
		}
		if old && n == r.checkpoint || !s.isOld() && !old && s.header.Index <= r.at {
			break
		}
	}
	if len(r.logs) == 0 {
		if old && (r.checkpoint > 1 || r.base.Revision > 0) { // a ledger of version 1 has a log after each checkpoint but its first
			return r.missing(r.checkpoint, logEnd)
		}
		return nil
	}
	first := &r.logs[0].header
	switch {
	case old && first.Number != r.checkpoint, !old && (first.Version == 1 || first.Index > r.at):
		if r.checkpoint == 0 && first.Version == 1 {
			return &CorruptError{File: r.logs[0].path, Why: "there is no checkpoint that it continues"}
		}
		return r.missing(first.Number-1, logEnd)
	case old && first.Revision != r.base.Revision:
		return r.logs[0].corrupt(0, fmt.Sprintf("it continues revision %d; the checkpoint has %d", first.Revision, r.base.Revision))
	}
	return nil
}

// readLogs finds which entries each log has.
func (r *loading) readLogs() error {
	revision := r.base.Revision
	for i, s := range r.logs {
		var next *header
		if i+1 < len(r.logs) {
			next = &r.logs[i+1].header
		}
		if s.isOld() {
			if s.header.Revision != revision {
				return s.corrupt(0, fmt.Sprintf("it continues revision %d; the files before it end at %d", s.header.Revision, revision))
			}
			s.last = r.tail
		} else if i > 0 && s.last != r.tail {
			return s.corrupt(0, fmt.Sprintf("it continues entry %d; the log before it ends with entry %d", s.last, r.tail))
		}
		seg, err := r.segmentOf(s, next)
		if err != nil {
			return err
		}
		r.segments = append(r.segments, seg)
		if s.isOld() {
			r.oldest = seg.last
		}
		r.tail, revision = seg.last, s.revision
	}
	if r.tail < r.at { // the logs after the checkpoint were not begun, and one before it was left over
		r.segments, r.tail, r.cut = nil, r.at, 0
	}
	r.last = max(r.last, r.checkpoint-min(r.checkpoint, 1))
	return nil
}

// segmentOf returns which entries a log has; next is the header of the log after it, nil: it is the last one.
func (r *loading) segmentOf(s *scanner, next *header) (segment, error) {
	seg := segment{number: s.header.Number, after: s.last}
	if next != nil && !s.isOld() {
		seg.last, seg.end = next.Index, next.Previous
		return seg, nil
	}
	until := int64(-1)
	if next != nil {
		until = next.Previous
	}
	for {
		if _, err := s.entry(until); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return seg, err
		}
	}
	seg.last, seg.end = s.last, s.end
	if next == nil {
		r.cut = s.size - s.end
		if r.sync {
			return seg, diskError("sync", s.path, s.file.Sync())
		}
	}
	return seg, nil
}

// inspect restores the newest state, entry by entry, so that an error names its place.
func (l *fileLog) inspect(visit func(Entry) error) (found Found, err error) {
	state, err := l.inspectCheckpoint(visit)
	if err != nil {
		return Found{}, err
	}
	judge := &orbit.MemoryLedger{Start: state}
	found.Cut = l.cut
	for _, seg := range l.segments {
		n, err := l.inspectLog(seg, judge, visit)
		if found.Changes += n; err != nil {
			return Found{}, err
		}
	}
	if found.State, err = judge.Snapshot(background); err != nil {
		return Found{}, err
	}
	if err := found.State.Verify(); err != nil {
		return Found{}, &CorruptError{File: l.dir, Why: err.Error(), cause: err}
	}
	return found, nil
}

// inspectCheckpoint restores the state in the newest checkpoint.
func (l *fileLog) inspectCheckpoint(visit func(Entry) error) (*orbit.State, error) {
	at, in, err := l.Checkpoint(background)
	if errors.Is(err, logledger.ErrNoCheckpoint) {
		return nil, fmt.Errorf("diskledger: %w: there is no ledger in %s", orbit.ErrInvalid, l.dir)
	}
	if err != nil {
		return nil, err
	}
	r := in.(*pieceReader)
	state, err := logledger.RestoreCheckpoint(r)
	offset := r.at
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	var corrupt *CorruptError
	if errors.Is(err, logledger.ErrCorrupt) && !errors.As(err, &corrupt) || errors.Is(err, logledger.ErrVersion) {
		err = placed(r.path, offset, err)
	}
	if err == nil && r.isOld() && state.Revision() != r.header.Revision {
		err = r.corrupt(0, fmt.Sprintf("its state is at revision %d, its header says %d", state.Revision(), r.header.Revision))
	}
	if err != nil {
		return nil, err
	}
	return state, visit(Entry{File: r.path, Checkpoint: true, Bytes: r.size, Index: at})
}

// inspectLog applies the entries of one log that are not in the checkpoint.
func (l *fileLog) inspectLog(seg segment, judge *orbit.MemoryLedger, visit func(Entry) error) (changes int64, err error) {
	s, err := l.openScanner(seg.number, logKind, logEnd)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := visit(Entry{File: s.path, Bytes: s.size, Index: seg.after}); err != nil {
		return 0, err
	}
	state, _ := judge.Snapshot(background) // cannot fail
	rev := state.Revision()
	for s.last = seg.after; ; {
		data, err := s.entry(seg.end)
		if errors.Is(err, io.EOF) {
			if s.last != seg.last {
				err = s.corrupt(s.end, fmt.Sprintf("it ends with entry %d; the next log says that it ends with entry %d", s.last, seg.last))
			} else {
				err = nil
			}
			return changes, err
		}
		if err != nil {
			return changes, err
		}
		if s.last <= l.at {
			continue
		}
		e, err := logledger.DecodeEntry(data)
		if err == nil {
			rev, err = e.Continue(rev)
		}
		if err == nil {
			err = judge.Apply(e.Changes)
		}
		if err != nil {
			return changes, placed(s.path, s.at, err)
		}
		changes += int64(len(e.Changes))
		if err := visit(Entry{File: s.path, Offset: s.at, Index: s.last, Changes: e.Changes}); err != nil {
			return changes, err
		}
	}
}
