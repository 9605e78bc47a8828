package etcdledger

import (
	"bytes"
	"context"
	"fmt"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/logledger"
)

// blobWriter stores what is written to it in parts.
type blobWriter struct {
	log   *Log
	ctx   context.Context
	name  string
	parts int
	buf   []byte
}

// Write implements io.Writer.
func (w *blobWriter) Write(p []byte) (n int, err error) {
	size := w.log.options.partBytes()
	for len(p) > 0 && err == nil {
		take := min(len(p), size-len(w.buf))
		w.buf, p, n = append(w.buf, p[:take]...), p[take:], n+take
		if len(w.buf) == size {
			err = w.flush()
		}
	}
	return n, err
}

// flush stores what was written as a part.
func (w *blobWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.log.do(w.ctx, clientv3.OpPut(part(w.name, w.parts), string(w.buf)))
	w.parts++
	w.buf = w.buf[:0]
	return err
}

// storeBlob stores data in parts, and returns how many there are.
func (h *Log) storeBlob(ctx context.Context, name string, data []byte) (int, error) {
	w := &blobWriter{log: h, ctx: ctx, name: name}
	_, err := w.Write(data)
	if err == nil {
		err = w.flush()
	}
	if err != nil {
		return 0, fmt.Errorf("store part %d: %w", w.parts, err)
	}
	return w.parts, nil
}

// blobReader reads the parts of a blob.
type blobReader struct {
	log   *Log
	ctx   context.Context
	name  string
	parts int
	next  int
	rest  []byte
}

// Read implements io.Reader. Its error is logledger.ErrTrimmed if a part is not there any more.
func (r *blobReader) Read(to []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.next == r.parts {
			return 0, io.EOF
		}
		got, err := r.log.read(r.ctx, clientv3.OpGet(part(r.name, r.next)))
		if err == nil && len(got[0].Kvs) == 0 {
			err = logledger.ErrTrimmed
		}
		if err != nil {
			return 0, fmt.Errorf("etcdledger: read part %d of %d: %w", r.next, r.parts, err)
		}
		r.rest = got[0].Kvs[0].Value
		r.next++
	}
	n := copy(to, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Place implements [logledger.PlacedReader]. It names the key of the part that was read last.
func (r *blobReader) Place() logledger.Place { return place(part(r.name, max(r.next, 1)-1)) }

// Close implements io.Closer.
func (r *blobReader) Close() error { return nil }

// readBlob reads all parts of a blob.
func (h *Log) readBlob(ctx context.Context, name string, parts int) ([]byte, error) {
	var data bytes.Buffer
	_, err := io.Copy(&data, &blobReader{log: h, ctx: ctx, name: name, parts: parts})
	return data.Bytes(), err
}
