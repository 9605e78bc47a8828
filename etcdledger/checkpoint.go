package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// checkpoint names a checkpoint. It is the value of the key checkpoint.
type checkpoint struct {
	head
	parts int
}

// String returns the checkpoint as it is stored.
func (c checkpoint) String() string { return fmt.Sprintf("%v %d", c.head, c.parts) }

// blob returns the name of the checkpoint's parts.
func (c checkpoint) blob(k keys) string {
	return k.blobs(checkpointBlob) + digits(c.index) + "/" + c.tag
}

// parseCheckpoint is the inverse of String.
func parseCheckpoint(value []byte) (c checkpoint, err error) {
	fields, _, err := parseLine(value, 3)
	if err != nil {
		return c, fmt.Errorf("key checkpoint: %w", err)
	}
	index, err := strconv.ParseUint(fields[0], 10, 64)
	if err == nil {
		c.parts, err = strconv.Atoi(fields[2])
	}
	if err != nil {
		return c, fmt.Errorf("%w: key checkpoint: %w", logledger.ErrCorrupt, err)
	}
	c.head = head{logledger.Index(index), fields[1]}
	return c, nil
}

// lastCheckpoint returns the newest checkpoint and the revision at which it became that; 0: there is none.
func (h *Log) lastCheckpoint(ctx context.Context) (c checkpoint, rev int64, err error) {
	got, err := h.read(ctx, clientv3.OpGet(h.keys.checkpoint()))
	if err != nil || len(got[0].Kvs) == 0 {
		return c, 0, err
	}
	c, err = parseCheckpoint(got[0].Kvs[0].Value)
	return c, got[0].Kvs[0].ModRevision, err
}

// Checkpoint implements [logledger.Log]. Each part is read when it is needed.
func (h *Log) Checkpoint(ctx context.Context) (logledger.Index, io.ReadCloser, error) {
	c, rev, err := h.lastCheckpoint(ctx)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("etcdledger: find the newest checkpoint: %w", err)
	case rev == 0:
		return 0, nil, logledger.ErrNoCheckpoint
	}
	return c.index, &blobReader{log: h, ctx: ctx, name: c.blob(h.keys), parts: c.parts}, nil
}

// SaveCheckpoint implements [logledger.Log]. Nobody sees the parts until one transaction makes them the newest checkpoint.
func (h *Log) SaveCheckpoint(ctx context.Context, at logledger.Index, write func(io.Writer) error) error {
	there, rev, err := h.lastCheckpoint(ctx)
	if err == nil && rev > 0 && there.index >= at {
		return logledger.ErrTaken
	}
	if err == nil {
		err = h.saveCheckpoint(ctx, at, write)
	}
	if err != nil && !errors.Is(err, logledger.ErrTaken) {
		return fmt.Errorf("etcdledger: store checkpoint %d: %w", at, err)
	}
	return err
}

// saveCheckpoint stores the parts of a checkpoint and makes it the newest one. If that is not to be, it removes the parts.
func (h *Log) saveCheckpoint(ctx context.Context, at logledger.Index, write func(io.Writer) error) error {
	c := checkpoint{head{at, h.tags.next()}, 0}
	w := &blobWriter{log: h, ctx: ctx, name: c.blob(h.keys)}
	err := write(w)
	if err == nil {
		err = w.flush()
	}
	if c.parts = w.parts; err == nil {
		err = h.switchTo(ctx, c)
		if err == nil || !errors.Is(err, logledger.ErrTaken) && !errors.Is(err, orbit.ErrUnavailable) {
			return err // it is the newest, or may still become so
		}
	}
	if left := h.do(context.WithoutCancel(ctx), clientv3.OpDelete(c.blob(h.keys)+"/", clientv3.WithPrefix())); left != nil {
		err = errors.Join(err, left)
	}
	return err
}

// switchTo makes a checkpoint the newest one if that is older, and removes the parts of older ones.
func (h *Log) switchTo(ctx context.Context, c checkpoint) error {
	for {
		there, rev, err := h.lastCheckpoint(ctx)
		switch {
		case err != nil:
			return err
		case rev > 0 && there.index >= c.index:
			return logledger.ErrTaken
		}
		resp, err := h.commit(ctx, clientv3.Compare(clientv3.ModRevision(h.keys.checkpoint()), "=", rev), []clientv3.Op{
			clientv3.OpPut(h.keys.checkpoint(), c.String()),
			clientv3.OpDelete(h.keys.blobs(checkpointBlob), clientv3.WithRange(h.keys.blobs(checkpointBlob)+digits(c.index))),
		})
		if err != nil || resp.Succeeded {
			return err
		}
	}
}

// trimEntries is how many entries one request removes.
const trimEntries = 1000

// Trim implements [logledger.Log].
func (h *Log) Trim(ctx context.Context, upTo logledger.Index) error {
	if err := h.trim(ctx, upTo); err != nil {
		return fmt.Errorf("etcdledger: trim: %w", err)
	}
	return nil
}

// trim removes entries from the oldest on, with their parts, and the parts of posts that were stored before the last of them.
func (h *Log) trim(ctx context.Context, upTo logledger.Index) error {
	now, err := h.newest(ctx)
	if err != nil || now.index == 0 {
		return err
	}
	end := h.keys.entry(min(upTo, now.index-1) + 1)
	for {
		got, err := h.read(ctx, clientv3.OpGet(h.keys.entry(0), clientv3.WithRange(end), clientv3.WithLimit(trimEntries), clientv3.WithKeysOnly()))
		if err != nil || len(got[0].Kvs) == 0 {
			return err
		}
		last := got[0].Kvs[len(got[0].Kvs)-1]
		if err := h.do(ctx, clientv3.OpDelete(h.keys.entry(0), clientv3.WithRange(string(last.Key)+"\x00"))); err != nil {
			return err
		}
		if got[0].More {
			continue
		}
		if err := h.do(ctx, clientv3.OpDelete(h.keys.blobs(entryBlob), clientv3.WithRange(h.keys.blobs(entryBlob)+end[len(end)-indexDigits:]))); err != nil {
			return err
		}
		return h.trimPosts(ctx, last.ModRevision)
	}
}

// trimPosts removes the parts of posts that were stored before a revision. Their posts are settled.
func (h *Log) trimPosts(ctx context.Context, before int64) error {
	for {
		got, err := h.read(ctx, clientv3.OpGet(h.keys.blobs(postBlob), clientv3.WithPrefix(), clientv3.WithMaxModRev(before), clientv3.WithLimit(trimEntries), clientv3.WithKeysOnly()))
		if err != nil {
			return err
		}
		for _, kv := range got[0].Kvs {
			if err := h.do(ctx, clientv3.OpDelete(string(kv.Key))); err != nil {
				return err
			}
		}
		if !got[0].More {
			return nil
		}
	}
}
