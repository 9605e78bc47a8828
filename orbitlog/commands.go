package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/logledger"
)

// with opens a log, calls do and closes the log.
func (c *command) with(ctx context.Context, a address, purpose use, do func(*store) error) error {
	s, err := c.open(ctx, a, purpose)
	if err == nil {
		err = errors.Join(do(s), s.Close())
	}
	if err != nil {
		return fmt.Errorf("%v: %w", a, err)
	}
	return nil
}

// inspect reads all of a log.
func inspect(ctx context.Context, p *progress, s *store, visit func(*logledger.Part) error) (logledger.Found, error) {
	tail, err := s.Tail(ctx)
	if err != nil {
		return logledger.Found{}, err
	}
	p.begin("reading", tail)
	return logledger.Inspect(ctx, s.Log, func(part logledger.Part) error {
		p.part(&part)
		return visit(&part)
	})
}

// nothing visits a part, and does nothing with it.
func nothing(*logledger.Part) error { return nil }

// print prints the parts of a log.
func (c *command) print(ctx context.Context, p *progress, logs []address) error {
	return c.with(ctx, logs[0], toRead, func(s *store) error {
		before := logledger.Part{}
		_, err := inspect(ctx, p, s, func(part *logledger.Part) error {
			err := printPart(c.out, part, &before)
			before = *part
			return err
		})
		return err
	})
}

// printPart prints a part, and the changes of an entry.
func printPart(out io.Writer, part, before *logledger.Part) error {
	if part.State != nil {
		_, err := fmt.Fprintf(out, "# checkpoint after entry %d, revision %d: %d bytes, %v\n", part.Index, part.Revision, part.Bytes, part.Place)
		return err
	}
	e := &part.Entry
	by := ""
	if e.Writer != (logledger.WriterID{}) {
		by = fmt.Sprintf(" by %v", e.Writer)
	}
	revisions := fmt.Sprint("revision ", part.Revision)
	if from := before.Revision + 1; from < part.Revision {
		revisions = fmt.Sprintf("revisions %d to %d", from, part.Revision)
	}
	_, err := fmt.Fprintf(out, "# entry %d%s, %s: %d bytes, %v\n", part.Index, by, revisions, part.Bytes, part.Place)
	for i := range e.Changes {
		line, failed := e.Changes[i].MarshalJSON()
		if err = errors.Join(err, failed); err == nil {
			_, err = fmt.Fprintf(out, "%s\n", line)
		}
	}
	return err
}

// state prints the newest state.
func (c *command) state(ctx context.Context, p *progress, logs []address) error {
	return c.with(ctx, logs[0], toRead, func(s *store) error {
		found, err := inspect(ctx, p, s, nothing)
		if err != nil {
			return err
		}
		return found.State.Dump(c.out)
	})
}

// verify reads everything, and says what it has found.
func (c *command) verify(ctx context.Context, p *progress, logs []address) error {
	return c.with(ctx, logs[0], toRead, func(s *store) error {
		found, err := inspect(ctx, p, s, nothing)
		if err != nil {
			return err
		}
		return c.report("verify", s, &found)
	})
}

// report prints what was found in a log, and that the command has done its work.
func (c *command) report(command string, s *store, found *logledger.Found) error {
	unfinished := fmt.Sprintf("%d posts that no entry has settled", found.Posts)
	if file, ok := s.Log.(*diskledger.Log); ok {
		unfinished = fmt.Sprintf("%d bytes of an unfinished write", file.Unfinished())
	}
	_, err := fmt.Fprintf(c.out, "revision %d, %d nodes, %d capsules\nthe checkpoint has the first %d entries; %d more with %d changes come after it\n%s\n%s: ok\n",
		found.State.Revision(), found.State.NodeCount(), found.State.CapsuleCount(), found.Checkpoint, found.Entries, found.Changes, unfinished, command)
	return err
}

// compact makes a checkpoint of the newest state, and removes the entries before it. Ledgers that are behind go on from the
// checkpoint.
func (c *command) compact(ctx context.Context, p *progress, logs []address) error {
	return c.with(ctx, logs[0], toChange, func(s *store) error {
		found, err := inspect(ctx, p, s, nothing)
		if err != nil {
			return err
		}
		p.begin("writing", found.Index)
		err = s.SaveCheckpoint(ctx, found.Index, func(w io.Writer) error { return logledger.WriteCheckpoint(w, found.State) })
		if err == nil || errors.Is(err, logledger.ErrTaken) { // taken: there is one as new
			err = s.Trim(ctx, found.Index)
		}
		if err == nil {
			found, err = inspect(ctx, p, s, nothing)
		}
		if err != nil {
			return err
		}
		return c.report("compact", s, &found)
	})
}

// copy copies a log to another one. It reads the source once before it changes the target, so that the target of a damaged log
// stays empty.
func (c *command) copy(ctx context.Context, p *progress, logs []address) error {
	err := c.verified(ctx, p, logs[0], func(from *store, tail logledger.Index) (err error) {
		to, err := c.open(ctx, logs[1], toMake)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
		p.begin("copying", tail)
		found, err := logledger.Copy(ctx, from.Log, to.Log, logledger.CopyOptions{Redo: c.redo, Visit: func(part logledger.Part) error {
			p.part(&part)
			return nil
		}})
		if err != nil {
			return err
		}
		if tail, err := from.Tail(ctx); err != nil || tail > found.Index {
			fmt.Fprintln(c.problems, "orbitlog: a ledger has committed to the source meanwhile, and the copy lacks that; for all of it close the ledgers and copy to another log")
		}
		_, err = fmt.Fprintf(c.out, "revision %d, %d nodes, %d capsules\na checkpoint and %d entries with %d changes are copied, and read back\ncopy: ok\n",
			found.State.Revision(), found.State.NodeCount(), found.State.CapsuleCount(), found.Entries, found.Changes)
		return err
	})
	if err != nil {
		return fmt.Errorf("copy %v to %v: %w", logs[0], logs[1], err)
	}
	return nil
}

// verified opens a log, reads all of it, and then calls do with it and the index of its newest entry.
func (c *command) verified(ctx context.Context, p *progress, a address, do func(*store, logledger.Index) error) error {
	s, err := c.open(ctx, a, toRead)
	if err != nil {
		return err
	}
	found, err := inspect(ctx, p, s, nothing)
	if err == nil {
		err = do(s, found.Index)
	}
	return errors.Join(err, s.Close())
}
