package etcdledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// Log is a log in etcd. Its methods may be called from any goroutine.
type Log struct {
	client  *clientv3.Client
	options LogOptions
	keys    keys
	tags    *tags
	changed chan struct{}
	watcher
	// page is how many entries Read asks for.
	page atomic.Int64

	mu sync.Mutex // guards known
	// known is the newest entry that this handle has returned or written. Its tag is empty at first.
	known head
}

var (
	_ logledger.Poster = (*Log)(nil)
	_ logledger.Placer = (*Log)(nil)
)

// begin checks the layout, and makes the log if it is not there.
func (h *Log) begin(ctx context.Context) error {
	there := clientv3.OpGet(h.keys.meta())
	if h.options.Existing {
		got, err := h.read(ctx, there)
		switch {
		case err != nil:
			return err
		case len(got[0].Kvs) == 0:
			return ErrNoLog
		}
		return checkMeta(got[0].Kvs[0].Value)
	}
	fresh := []clientv3.Op{
		clientv3.OpPut(h.keys.meta(), fmt.Sprintf(`{"v":%d}`, layout)),
		clientv3.OpPut(h.keys.head(), head{0, h.tags.next()}.String()),
	}
	made, err := h.commit(ctx, clientv3.Compare(clientv3.CreateRevision(h.keys.meta()), "=", 0), fresh, there)
	switch {
	case err != nil:
		return nothingDone(err) // nothing that could not be done again
	case made.Succeeded:
		return nil
	}
	return checkMeta(made.Responses[0].GetResponseRange().Kvs[0].Value)
}

// commit is a transaction that writes. Its error is orbit.ErrUnavailable only if it is certain that nothing was written.
func (h *Log) commit(ctx context.Context, only clientv3.Cmp, then []clientv3.Op, otherwise ...clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, nothingDone(err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	resp, err := h.client.Txn(ctx).If(only).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return nil, outcome(err)
	}
	return resp, nil
}

// do is a write without a condition. Its error is that of commit.
func (h *Log) do(ctx context.Context, op clientv3.Op) error {
	if err := ctx.Err(); err != nil {
		return nothingDone(err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	if _, err := h.client.Do(ctx, op); err != nil {
		return outcome(err)
	}
	return nil
}

// read reads some ranges at one revision that is the newest during the call. Its error is orbit.ErrUnavailable.
func (h *Log) read(ctx context.Context, gets ...clientv3.Op) ([]*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	if len(gets) == 1 {
		got, err := h.client.Do(ctx, gets[0])
		if err != nil {
			return nil, nothingDone(err)
		}
		return []*clientv3.GetResponse{got.Get()}, nil
	}
	got, err := h.client.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, nothingDone(err)
	}
	out := make([]*clientv3.GetResponse, len(gets))
	for i := range got.Responses {
		out[i] = (*clientv3.GetResponse)(got.Responses[i].GetResponseRange())
	}
	return out, nil
}

// newest returns the head.
func (h *Log) newest(ctx context.Context) (head, error) {
	got, err := h.read(ctx, clientv3.OpGet(h.keys.head()))
	if err != nil {
		return head{}, err
	}
	return h.headOf(got[0].Kvs)
}

// headOf returns the head that was read.
func (h *Log) headOf(kvs []*mvccpb.KeyValue) (head, error) {
	if len(kvs) == 0 {
		return head{}, fmt.Errorf("%w: %w", logledger.ErrFailed, errLost)
	}
	return parseHead(kvs[0].Value)
}

// remember notes the newest entry that this handle has returned or written.
func (h *Log) remember(at head) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known = at
}

// tagAt returns the tag of the entry at an index as this handle has seen it; "": it has not seen it.
func (h *Log) tagAt(at logledger.Index) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known.index != at {
		return ""
	}
	return h.known.tag
}

// Append implements [logledger.Log].
func (h *Log) Append(ctx context.Context, a logledger.Append) ([]logledger.Post, error) {
	posts, err := h.append(ctx, &a)
	if err != nil && !errors.Is(err, logledger.ErrTaken) {
		return nil, fmt.Errorf("etcdledger: append entry %d: %w", a.Index, err)
	}
	return posts, err
}

// append writes an entry and the next head, and removes posts, in one transaction that compares the head.
func (h *Log) append(ctx context.Context, a *logledger.Append) ([]logledger.Post, error) {
	if a.Index == 0 {
		return nil, logledger.ErrTaken
	}
	before := head{a.Index - 1, h.tagAt(a.Index - 1)}
	if before.tag == "" {
		now, err := h.newest(ctx)
		if err != nil {
			return nil, err
		}
		if now.index != before.index {
			return nil, logledger.ErrTaken
		}
		before = now
	}
	next := head{a.Index, h.tags.next()}
	value, err := h.entryValue(ctx, next, before.tag, a.Data)
	if err != nil {
		return nil, nothingDone(err) // the entry itself was not written
	}
	then := []clientv3.Op{clientv3.OpPut(h.keys.entry(a.Index), value), clientv3.OpPut(h.keys.head(), next.String())}
	then = append(then, h.settle(a.Settled)...)
	then = append(then, h.getPosts())
	resp, err := h.commit(ctx, clientv3.Compare(clientv3.Value(h.keys.head()), "=", before.String()), then)
	switch {
	case err != nil:
		return nil, err
	case !resp.Succeeded:
		return nil, logledger.ErrTaken
	}
	h.remember(next)
	posts, err := h.postsOf(ctx, resp.Responses[len(resp.Responses)-1].GetResponseRange().Kvs)
	if err != nil { // the entry is there, so this is no error of Append: the ledger is told to read the posts
		h.options.OnError(fmt.Errorf("etcdledger: read the posts after entry %d: %w", a.Index, err))
		h.signal()
	}
	return posts, nil
}

// entryValue returns the value of an entry. It stores the data in parts if they are too large.
func (h *Log) entryValue(ctx context.Context, at head, before string, data []byte) (string, error) {
	if len(data) <= h.options.partBytes() {
		return entryLine(at.tag, before, 0) + string(data), nil
	}
	parts, err := h.storeBlob(ctx, h.entryBlob(at), data)
	return entryLine(at.tag, before, parts), err
}

// entryBlob returns the name of the parts of an entry.
func (h *Log) entryBlob(at head) string {
	return h.keys.blobs(entryBlob) + digits(at.index) + "/" + at.tag
}

// settle returns the operations that remove posts. Posts of one writer with numbers one after another are one operation.
func (h *Log) settle(ids []logledger.PostID) (ops []clientv3.Op) {
	sorted := slices.SortedFunc(slices.Values(ids), func(a, b logledger.PostID) int {
		return cmp.Or(bytes.Compare(a.Writer[:], b.Writer[:]), cmp.Compare(a.Number, b.Number))
	})
	for from := 0; from < len(sorted); {
		to := from + 1
		for to < len(sorted) && sorted[to].Writer == sorted[from].Writer && sorted[to].Number-sorted[to-1].Number <= 1 {
			to++
		}
		ops = append(ops, clientv3.OpDelete(h.keys.post(sorted[from]), clientv3.WithRange(h.keys.post(sorted[to-1])+"\x00")))
		from = to
	}
	return nest(ops)
}

// nestedOps is how many operations a transaction inside another one has at most. By default etcd accepts 128 in both together.
const nestedOps = 60

// nest puts operations into transactions inside the transaction if they are too many for one.
func nest(ops []clientv3.Op) []clientv3.Op {
	if len(ops) <= nestedOps {
		return ops
	}
	var nested []clientv3.Op
	for some := range slices.Chunk(ops, nestedOps) {
		nested = append(nested, clientv3.OpTxn(nil, some, nil))
	}
	return nested
}

// Post implements [logledger.Poster].
func (h *Log) Post(ctx context.Context, p logledger.Post) error {
	parts, data := 0, p.Data
	var err error
	if len(data) > h.options.partBytes() {
		parts, err = h.storeBlob(ctx, h.keys.blobs(postBlob)+postName(p.PostID), data)
		data = nil
	}
	if err == nil {
		err = h.do(ctx, clientv3.OpPut(h.keys.post(p.PostID), postLine(h.tags.next(), parts)+string(data)))
	}
	if err != nil {
		return fmt.Errorf("etcdledger: post: %w", err)
	}
	return nil
}

// getPosts is the operation that reads all posts.
func (h *Log) getPosts() clientv3.Op {
	return clientv3.OpGet(h.keys.posts(), clientv3.WithPrefix())
}

// postsOf returns the posts that were read, oldest first. One that cannot be understood is left out: who has posted it appends
// its proposals itself.
func (h *Log) postsOf(ctx context.Context, kvs []*mvccpb.KeyValue) ([]logledger.Post, error) {
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	var posts []logledger.Post
	for _, kv := range kvs {
		post, err := h.postOf(ctx, kv)
		switch {
		case errors.Is(err, orbit.ErrUnavailable):
			return nil, err
		case err != nil:
			h.options.OnError(fmt.Errorf("etcdledger: post %q: %w", kv.Key, err))
		default:
			posts = append(posts, post)
		}
	}
	return posts, nil
}

// postOf returns a post that was read.
func (h *Log) postOf(ctx context.Context, kv *mvccpb.KeyValue) (p logledger.Post, err error) {
	if p.PostID, err = h.keys.postID(string(kv.Key)); err != nil {
		return p, err
	}
	parts, data, err := parsePost(kv.Value)
	if p.Data = data; err == nil && parts > 0 {
		p.Data, err = h.readBlob(ctx, h.keys.blobs(postBlob)+postName(p.PostID), parts)
	}
	return p, err
}

const (
	// firstPage and mostPage are how many entries Read asks for at first and at most.
	firstPage = 32
	mostPage  = 1000
	// pageBytes is how many bytes a page should have.
	pageBytes = 4 << 20
)

// Read implements [logledger.Log]. It fails with [logledger.ErrFailed] if etcd has lost entries that this handle has returned or
// written.
func (h *Log) Read(ctx context.Context, after logledger.Index) (logledger.Page, error) {
	page, err := h.readPage(ctx, after)
	if err != nil {
		return logledger.Page{}, fmt.Errorf("etcdledger: read after %d: %w", after, err)
	}
	return page, nil
}

// readPage reads the head, the entries after an index and the posts at one revision.
func (h *Log) readPage(ctx context.Context, after logledger.Index) (page logledger.Page, err error) {
	if after == math.MaxUint64 {
		return page, orbit.ErrInvalid
	}
	got, err := h.read(ctx, clientv3.OpGet(h.keys.head()),
		clientv3.OpGet(h.keys.entry(after+1), clientv3.WithRange(h.keys.entriesEnd()), clientv3.WithLimit(h.page.Load())), h.getPosts())
	if err != nil {
		return page, err
	}
	now, err := h.headOf(got[0].Kvs)
	if err != nil {
		return page, err
	}
	at := head{after, h.tagAt(after)}
	if err := follows(now, at, got[1].Kvs, h.keys); err != nil {
		return page, err
	}
	if page.Entries, at, err = h.entriesOf(ctx, at, got[1].Kvs); err != nil {
		return page, err
	}
	h.adapt(page.Entries)
	if page.More = at.index < now.index; page.More {
		h.remember(at)
		return page, nil
	}
	h.remember(now)
	page.Posts, err = h.postsOf(ctx, got[2].Kvs)
	return page, err
}

// follows returns an error if what was read does not continue the log after an entry: entries, in a log with the newest one now.
func follows(now, after head, entries []*mvccpb.KeyValue, k keys) error {
	switch {
	case now.index < after.index, now.index == after.index && after.tag != "" && now.tag != after.tag:
		return fmt.Errorf("%w: %w", logledger.ErrFailed, errLost)
	case now.index > after.index && (len(entries) == 0 || string(entries[0].Key) != k.entry(after.index+1)):
		return logledger.ErrTrimmed
	}
	return nil
}

// entriesOf returns the entries that were read after an entry, and the last of them.
func (h *Log) entriesOf(ctx context.Context, after head, kvs []*mvccpb.KeyValue) (list [][]byte, last head, err error) {
	for _, kv := range kvs {
		e, err := parseEntry(kv.Value)
		at := head{after.index + 1, e.tag}
		switch {
		case err != nil:
		case string(kv.Key) != h.keys.entry(at.index):
			err = fmt.Errorf("%w: its key is %q", logledger.ErrCorrupt, kv.Key)
		case after.tag != "" && e.before != after.tag:
			err = fmt.Errorf("%w: %w", logledger.ErrFailed, errLost)
		case e.parts > 0:
			e.data, err = h.readBlob(ctx, h.entryBlob(at), e.parts)
		}
		if err != nil {
			return nil, last, h.wrong(at.index, err)
		}
		list, after = append(list, e.data), at
	}
	return list, after, nil
}

// Place implements [logledger.Placer]. It names the key of the entry.
func (h *Log) Place(at logledger.Index) logledger.Place { return place(h.keys.entry(at)) }

// place is where a key is.
func place(key string) logledger.Place {
	return logledger.Place{Name: fmt.Sprintf("key %q", key), Offset: -1}
}

// wrong returns an error of reading the entry at an index, with the place if the entry is damaged.
func (h *Log) wrong(at logledger.Index, err error) error {
	if errors.Is(err, logledger.ErrCorrupt) {
		return &logledger.CorruptError{Place: h.Place(at), Err: err}
	}
	return fmt.Errorf("entry %d: %w", at, err)
}

// adapt chooses how many entries the next page has, so that it is neither large nor short.
func (h *Log) adapt(entries [][]byte) {
	size := 1
	for _, e := range entries {
		size += len(e)
	}
	if len(entries) > 0 {
		h.page.Store(int64(min(max(1, len(entries)*pageBytes/size), 2*len(entries)+firstPage, mostPage)))
	}
}

// Tail implements [logledger.Log].
func (h *Log) Tail(ctx context.Context) (logledger.Index, error) {
	now, err := h.newest(ctx)
	if err != nil {
		return 0, fmt.Errorf("etcdledger: read the newest index: %w", err)
	}
	return now.index, nil
}

// Changed implements [logledger.Log].
func (h *Log) Changed() <-chan struct{} { return h.changed }

// Close implements [logledger.Log]. It does not close the client.
func (h *Log) Close() error {
	h.stop()
	h.done.Wait()
	return nil
}
