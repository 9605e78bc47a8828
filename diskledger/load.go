package diskledger

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenLog opens the log in a folder, for tools: the ledger itself is opened by [Open]. It makes the folder if it is not there.
// Until the log is closed it holds the folder's lock, so one Log or one [Ledger] at a time can have a folder open. Errors are
// those of Open, and [ErrNoLog].
func OpenLog(dir string, o LogOptions) (*Log, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	f, err := openFolder(o.FS, dir, !o.Existing && !o.ReadOnly)
	if err != nil {
		return nil, err
	}
	l, err := openLog(f, &o)
	if err != nil {
		return nil, errors.Join(err, f.unlock())
	}
	return l, nil
}

// openLog opens the log in a folder whose lock is held, and removes files that are not needed any more. What it finds is made
// durable first: a process that was killed between a write and its sync may have left a record, or a file's name, that a power
// failure would lose.
func openLog(f *folder, o *LogOptions) (*Log, error) {
	files, err := f.list()
	if err != nil {
		return nil, err
	}
	if (o.Existing || o.ReadOnly) && len(files.logs)+len(files.checkpoints) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoLog, f.dir)
	}
	l, err := loadLog(f, files, o.ReadOnly)
	if err != nil || o.ReadOnly {
		return l, err
	}
	if l.checkpoint == 0 {
		// The folder's entry in its parent must be on the disk before anything is committed in the folder, even if the folder
		// existed before this Open: an earlier Open may have made it and been killed before its own sync.
		if err := (&folder{fs: f.fs, dir: f.fs.PathDir(f.dir)}).sync(); err != nil {
			return nil, err
		}
	}
	return l, l.clean()
}

// loadLog reads which entries there are, and syncs what it has read unless the log is only read. It reads the headers of all
// logs that are needed, and the whole of the last one, to find where that ends.
func loadLog(f *folder, files listing, readOnly bool) (*Log, error) {
	r := loading{Log: &Log{folder: f, readOnly: readOnly, changed: make(chan struct{})}}
	defer r.close()
	err := r.findCheckpoint(files)
	if err == nil {
		err = r.findLogs(files)
	}
	if err == nil {
		err = r.readLogs()
	}
	if err == nil && !readOnly {
		err = f.sync()
	}
	if err != nil {
		return nil, err
	}
	return r.Log, nil
}

// loading is a log whose files are being found.
type loading struct {
	*Log
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
	return corrupt(r.path(nameOf(number, end)), -1, "it is missing")
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
		if s.isOld() && r.base.Version > 1 { // a checkpoint of version 2 includes all logs of version 1; their removal was interrupted
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
			return corrupt(r.logs[0].path, -1, "there is no checkpoint that it continues")
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
		if !r.readOnly {
			return seg, diskError("sync", s.path, s.file.Sync())
		}
	}
	return seg, nil
}
