package etcdledger

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit/logledger"
)

// layout is the version of the layout of keys, which the key meta has. Version 1 had a key for each capsule. meta is what
// releases of that time read first: they refuse any other version.
const layout = 2

// meta is the value of the key meta.
type meta struct {
	V int `json:"v"`
}

// checkMeta returns an error if this version cannot read what is below the prefix.
func checkMeta(value []byte) error {
	var m meta
	switch err := json.Unmarshal(value, &m); {
	case err != nil:
		return fmt.Errorf("%w: key meta: %w", logledger.ErrCorrupt, err)
	case m.V > layout:
		return fmt.Errorf("%w: the layout has version %d, this is version %d", logledger.ErrVersion, m.V, layout)
	case m.V < layout:
		return ErrOldFormat
	}
	return nil
}

// keys makes the keys of a log. The prefix ends in a slash.
type keys struct{ prefix string }

func (k keys) meta() string       { return k.prefix + "meta" }
func (k keys) head() string       { return k.prefix + "head" }
func (k keys) checkpoint() string { return k.prefix + "checkpoint" }

// entry returns the key of an entry. Keys are in the order of the entries.
func (k keys) entry(at logledger.Index) string { return k.prefix + "entry/" + digits(at) }

// entriesEnd returns the end of the range of all entries.
func (k keys) entriesEnd() string { return clientv3.GetPrefixRangeEnd(k.prefix + "entry/") }

// posts returns the beginning of the keys of all posts. Head is the only key of a log just before it: one watch has both.
func (k keys) posts() string { return k.prefix + "post/" }

// post returns the key of a post.
func (k keys) post(id logledger.PostID) string { return k.posts() + postName(id) }

// postName is the last part of the key of a post.
func postName(id logledger.PostID) string {
	return hex.EncodeToString(id.Writer[:]) + "/" + fmt.Sprintf("%020d", id.Number)
}

// postID returns the id of the post with a key.
func (k keys) postID(key string) (id logledger.PostID, err error) {
	writer, number, _ := strings.Cut(strings.TrimPrefix(key, k.posts()), "/")
	raw, err := hex.DecodeString(writer)
	if err == nil && len(raw) != len(id.Writer) {
		err = fmt.Errorf("a writer of %d bytes", len(raw))
	}
	copy(id.Writer[:], raw)
	if err == nil {
		id.Number, err = strconv.ParseUint(number, 10, 64)
	}
	if err != nil {
		return id, fmt.Errorf("%w: key %q: %w", logledger.ErrCorrupt, key, err)
	}
	return id, nil
}

// term returns the key of a token of refreshes. It goes with an etcd lease.
func (k keys) term(token string) string { return k.prefix + "terms/" + token }

// blobs returns the beginning of the keys of all blobs of a kind.
func (k keys) blobs(kind string) string { return k.prefix + "blob/" + kind + "/" }

// The kinds of blobs.
const (
	entryBlob      = "entry"
	postBlob       = "post"
	checkpointBlob = "checkpoint"
)

// part returns the key of a part of a blob.
func part(blob string, n int) string { return fmt.Sprintf("%s/%06d", blob, n) }

// indexDigits is how many digits an index has in a key.
const indexDigits = 20

// digits returns an index in a fixed width.
func digits(at logledger.Index) string { return fmt.Sprintf("%0*d", indexDigits, at) }

// tags makes tags, which are unique.
type tags struct {
	// self names the handle.
	self string
	last atomic.Uint64
}

// newTags returns the tags of a handle.
func newTags() *tags { return &tags{self: strings.ToLower(rand.Text())} }

// next returns another tag.
func (t *tags) next() string { return t.self + "-" + strconv.FormatUint(t.last.Add(1), 10) }

// made reports whether this handle has written a value with such a tag in its first line.
func (t *tags) made(value []byte) bool {
	line, _, _ := bytes.Cut(value, []byte("\n"))
	for field := range bytes.FieldsSeq(line) {
		if owner, _, _ := bytes.Cut(field, []byte("-")); string(owner) == t.self {
			return true
		}
		if bytes.ContainsRune(field, '-') {
			return false // an entry also has the tag of the one before
		}
	}
	return false
}

// version is the version of the values that this package writes, and the highest that it reads.
const version = "1"

// head is the value of the key head.
type head struct {
	index logledger.Index
	// tag is that of the entry at the index.
	tag string
}

// String returns the head as it is stored.
func (h head) String() string { return fmt.Sprintf("%s %d %s", version, h.index, h.tag) }

// parseHead is the inverse of String.
func parseHead(value []byte) (h head, err error) {
	fields, _, err := parseLine(value, 2)
	if err != nil {
		return h, fmt.Errorf("key head: %w", err)
	}
	index, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil {
		return h, fmt.Errorf("%w: key head: %w", logledger.ErrCorrupt, err)
	}
	return head{logledger.Index(index), fields[1]}, nil
}

// parseLine splits the first line of a value, without the version, into its fields. It also returns what comes after the line.
func parseLine(value []byte, fields int) ([]string, []byte, error) {
	line, rest, _ := bytes.Cut(value, []byte("\n"))
	list := strings.Fields(string(line))
	switch {
	case len(list) > 0 && list[0] != version && isNumber(list[0]):
		return nil, nil, fmt.Errorf("%w: it has version %s, this is version %s", logledger.ErrVersion, list[0], version)
	case len(list) != fields+1 || list[0] != version:
		return nil, nil, fmt.Errorf("%w: its first line is %.80q", logledger.ErrCorrupt, line)
	}
	return list[1:], rest, nil
}

// isNumber reports whether a text is a number.
func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 32)
	return err == nil
}

// entryLine returns the first line of an entry: its tag, that of the entry before, and the number of its parts; 0: the data
// follow the line.
func entryLine(tag, before string, parts int) string {
	return fmt.Sprintf("%s %s %s %d\n", version, tag, before, parts)
}

// entry is an entry as it is stored.
type entry struct {
	tag, before string
	parts       int
	data        []byte
}

// parseEntry splits the value of an entry.
func parseEntry(value []byte) (e entry, err error) {
	fields, data, err := parseLine(value, 3)
	if err != nil {
		return e, err
	}
	parts, err := strconv.Atoi(fields[2])
	if err != nil {
		return e, fmt.Errorf("%w: %w", logledger.ErrCorrupt, err)
	}
	return entry{fields[0], fields[1], parts, data}, nil
}

// postLine returns the first line of a post: the tag of the handle that stores it, and the number of its parts.
func postLine(tag string, parts int) string { return fmt.Sprintf("%s %s %d\n", version, tag, parts) }

// parsePost splits the value of a post.
func parsePost(value []byte) (parts int, data []byte, err error) {
	fields, data, err := parseLine(value, 2)
	if err == nil {
		if parts, err = strconv.Atoi(fields[1]); err != nil {
			err = fmt.Errorf("%w: %w", logledger.ErrCorrupt, err)
		}
	}
	return parts, data, err
}
