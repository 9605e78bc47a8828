package logledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/orbitsched/orbit/internal/rate"
)

// Index is the position of an entry in a log. The first entry has index 1, and indices have no gaps.
type Index uint64

// Log is a sequence of entries in some store. Each has its index for good: [Log.Append] writes an entry only at the next
// free index. A log is shared by any number of processes, each with a handle of its own, unless its package says
// otherwise. All methods may be called from any goroutine. Package logtest checks an implementation.
//
// Whatever a method returns must be durable: a majority of the store's members has it, or it is synced to the disk. So
// must everything be that a process which died has left, before it is returned.
//
// Errors: every method may return an error that is orbit.ErrUnavailable if the store cannot be reached and nothing was
// done; the ledger then tries again. An error that is [ErrFailed] says that trying again is of no use. Methods return soon
// after their context has ended.
type Log interface {
	// Append writes an entry at an index, if the newest entry is the one before it, and removes the posts that the entry
	// settles, all or nothing. The error is [ErrTaken] if there is an entry at the index already: nothing is written. After
	// any other error that is not orbit.ErrUnavailable the entry may be there, or may still come to be there: but only
	// while the entry before it is the newest one. If it is nil, posts are those that wait now.
	Append(ctx context.Context, a Append) (posts []Post, err error)
	// Read returns the entries after an index, in order: at least one, if there are any, and as many as is convenient. It
	// sees every Append that ended before the call. Posts are all that were not settled by an entry up to the last one
	// returned, or up to the newest one if that is returned. The error is [ErrTrimmed] if the entry after the index is no
	// longer there.
	Read(ctx context.Context, after Index) (Page, error)
	// Tail returns the index of the newest entry, 0 if there is none. It sees every Append that ended before the call.
	Tail(ctx context.Context) (Index, error)
	// Changed returns a channel that receives a value soon after another handle has added an entry or a post. Several may
	// share a value. It also receives one when the log can no longer tell: the ledger then reads, and knows whether the store
	// answers. The channel is never closed.
	Changed() <-chan struct{}
	// Checkpoint returns the newest checkpoint; its error is [ErrNoCheckpoint] if there is none. If the checkpoint is
	// removed while it is read, reading fails with [ErrTrimmed]; then ask for the newest again.
	Checkpoint(ctx context.Context) (Index, io.ReadCloser, error)
	// SaveCheckpoint stores what write writes as the checkpoint after an index, and makes it the newest, all or nothing.
	// The error is ErrTaken if there is a checkpoint at this index or a later one. Any older checkpoint may be removed.
	SaveCheckpoint(ctx context.Context, at Index, write func(io.Writer) error) error
	// Trim may remove the entries up to an index. The newest entry always stays.
	Trim(ctx context.Context, upTo Index) error
	// Close releases what the handle holds. It ends no calls.
	Close() error
}

// Poster is a [Log] with a place for posts. A log that several processes append to should be a Poster: without posts,
// who is further away from the store is starved by who is close.
type Poster interface {
	Log
	// Post stores a post until an entry settles it. After an error the post may be there, or may come to be there.
	Post(ctx context.Context, p Post) error
}

// Placer is a [Log] that can say where in its store an entry is. Errors of damage then name the place.
type Placer interface {
	Log
	// Place returns where an entry is that the latest Read has returned: a file and a byte in it, a key, a row.
	Place(at Index) Place
}

// PlacedReader is a checkpoint, as [Log.Checkpoint] returns it, that can say where in its store it is.
type PlacedReader interface {
	io.ReadCloser
	// Place returns where the part is that was read last.
	Place() Place
}

// Place is where in a store something is.
type Place struct {
	// Name names a file, a key or a row.
	Name string
	// Offset is a position in a file, in bytes from its beginning; negative: all of what Name names is meant.
	Offset int64
}

// String returns the place as text.
func (p Place) String() string {
	if p.Offset < 0 {
		return p.Name
	}
	return fmt.Sprintf("%s at byte %d", p.Name, p.Offset)
}

// Append is an entry to be written.
type Append struct {
	// Index is where the entry is to be.
	Index Index
	// Data is the entry. Append keeps no reference to it.
	Data []byte
	// Settled are the posts that the entry settles. They need not be there any more.
	Settled []PostID
}

// Page is what [Log.Read] returns. Nobody may write to its slices.
type Page struct {
	// Entries are consecutive entries; the first one is at the index after the one that was asked for.
	Entries [][]byte
	// Posts are the posts that wait to be settled, oldest first.
	Posts []Post
	// More says that there were entries after these when they were read. Posts are then not set.
	More bool
}

// PostID identifies a post.
type PostID struct {
	// Writer is the ledger that has posted it.
	Writer WriterID
	// Number counts the posts of the writer.
	Number uint64
}

// Post is a group of proposals that its writer asks others to judge and to append, because it has lost the race for the
// next index, or expects to lose it.
type Post struct {
	PostID
	// Data has the proposals.
	Data []byte
}

// Errors of logs and ledgers, to be tested with errors.Is.
var (
	// ErrTaken: there is an entry, or a checkpoint, at this index already.
	ErrTaken = errors.New("logledger: the index is taken")
	// ErrTrimmed: the entry or the checkpoint was removed, because a newer checkpoint has what it has.
	ErrTrimmed = errors.New("logledger: trimmed; a newer checkpoint has it")
	// ErrNoCheckpoint: the log is new.
	ErrNoCheckpoint = errors.New("logledger: there is no checkpoint")
	// ErrFailed: the store can take nothing more until the ledger is closed and opened again.
	ErrFailed = errors.New("logledger: the log has failed; close the ledger, and open it again when the store is repaired")
	// ErrVersion: an entry or a checkpoint needs a newer version of this package.
	ErrVersion = errors.New("logledger: written by a newer version; use that one")
	// ErrCorrupt: an entry or a checkpoint is damaged. If it is known where, it comes as a [*CorruptError].
	ErrCorrupt = errors.New("logledger: damaged")
	// ErrBack: the store, or a connection to it, works again. It is no error: Options.OnError is told of it after an outage that
	// it was told of.
	ErrBack = rate.ErrBack
	// ErrClosed: the ledger is closed.
	ErrClosed = errors.New("logledger: the ledger is closed")
	// ErrMismatch: the ledger was made with other limits or dimension names than the options ask for.
	ErrMismatch = errors.New("logledger: made with other options")
	// ErrNotEmpty: a log is not empty, so nothing can be copied to it.
	ErrNotEmpty = errors.New("logledger: the target has a ledger already; name another target")
	// ErrUnfinished: a copy to the log was not finished.
	ErrUnfinished = errors.New("logledger: a copy to this log was not finished; copy again, and redo it")
)

// CorruptError says where a log is damaged. It is [ErrCorrupt] for errors.Is.
type CorruptError struct {
	// Place is where the damaged file, record, key or row is.
	Place Place
	// Err says what is wrong there.
	Err error
}

// Error names the place, what is wrong there, and what to do.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %v: %s; restore the log from a copy", ErrCorrupt, e.Place, strings.TrimPrefix(e.Err.Error(), ErrCorrupt.Error()+": "))
}

// Unwrap returns ErrCorrupt and Err.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// placed returns an error of reading an entry that names the entry's place.
func placed(log Log, at Index, err error) error {
	place := Place{Name: fmt.Sprintf("entry %d", at), Offset: -1}
	if p, ok := log.(Placer); ok {
		place = p.Place(at)
	}
	return located(place, err)
}

// located returns an error of reading what is at a place: as a [*CorruptError], if that is damaged.
func located(place Place, err error) error {
	var known *CorruptError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, ErrCorrupt):
		return &CorruptError{place, err}
	}
	return fmt.Errorf("%v: %w", place, err)
}
