package shard

import (
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/orbitsched/orbit"
)

// markKind is a kind of mark: the prefix of its keys. The id follows, unescaped, up to the end of the key. No prefix is
// the beginning of another one, so two different ids or kinds never have the same key, even if an id contains slashes.
// Escaping would only make keys longer.
type markKind string

const (
	groupMark      markKind = "group/"
	leavingMark    markKind = "leaving/"
	leftMark       markKind = "left/"
	failedMark     markKind = orbit.PlanPrefix + "capsule/failed/" // schedulers write it in their plans
	pinnedMark     markKind = orbit.PinPrefix
	failedGangMark markKind = orbit.PlanPrefix + "gang/failed/"
	pinnedGangMark markKind = orbit.PinGangPrefix
)

// LeasePrefix is the Prefix that the [lease.Keeper] of the schedulers' leases must have.
//
// [lease.Keeper]: https://pkg.go.dev/github.com/orbitsched/orbit/lease#Keeper
const LeasePrefix = "scheduler/"

// key returns the key of the mark for an id.
func (k markKind) key(id string) string { return string(k) + id }

// id returns the id in a key. It reports false if the key is of another kind.
func (k markKind) id(key string) (id string, ok bool) {
	id, ok = strings.CutPrefix(key, string(k))
	return id, ok && id != ""
}

// fits returns an error if the key for an id is too long for a ledger.
func (k markKind) fits(id string, limits orbit.Limits) error {
	if most := limits.IDBytes - len(k); len(id) > most {
		return keyError(k, id, most)
	}
	return nil
}

// Failure records that one scheduler could not place a capsule.
type Failure struct {
	// Scheduler is the scheduler's name.
	Scheduler string
	// View is the revision of the view that the scheduler planned on. Only a later change can make the capsule fit.
	View orbit.Revision
	// Why is the scheduler's reason, shortened to 96 bytes.
	Why string
}

// failures are the schedulers that could not place a capsule, each once, the newest last.
type failures struct {
	list []Failure
	// more says that the oldest failures were dropped because the mark had no room for them.
	more bool
}

// The value of a failed mark, as in
//
//	1 a=17,12+nodes+lack+cpu&b%2Fc=21,
//
// is a version and, for each scheduler, its name, the revision and the reason, escaped as in the query of a URL. A plus
// after the version says that older failures were dropped. Any other value is corrupt.
const (
	failedValue     = "1 "
	failedValueMore = "1+ "
	// maxWhy is the greatest length of a reason in bytes.
	maxWhy = 96
)

// with returns the list with one more failure, which replaces an older one of the same scheduler.
func (f failures) with(one Failure) failures {
	one.Why = shorten(one.Why, maxWhy)
	return failures{append(f.without(one.Scheduler).list, one), f.more}
}

// without returns a copy of the list without the failure of a scheduler.
func (f failures) without(scheduler string) failures {
	list := make([]Failure, 0, len(f.list)+1)
	for _, known := range f.list {
		if known.Scheduler != scheduler {
			list = append(list, known)
		}
	}
	return failures{list, f.more}
}

// find returns the failure of a scheduler.
func (f failures) find(scheduler string) (Failure, bool) {
	for _, one := range f.list {
		if one.Scheduler == scheduler {
			return one, true
		}
	}
	return Failure{}, false
}

// value returns the list as the value of a mark, of at most limit bytes. If the list is too long it leaves out the
// reasons first, and then the oldest failures.
func (f failures) value(limit int) string {
	if v := f.format(true); len(v) <= limit {
		return v
	}
	for {
		v := f.format(false)
		if len(v) <= limit || len(f.list) == 0 {
			return v
		}
		f = failures{f.list[1:], true}
	}
}

// format returns the whole list as the value of a mark, with or without the reasons.
func (f failures) format(reasons bool) string {
	var b strings.Builder
	b.WriteString(failedValue[:1])
	if f.more {
		b.WriteByte('+')
	}
	b.WriteByte(' ')
	for i, one := range f.list {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(one.Scheduler))
		b.WriteByte('=')
		b.WriteString(strconv.FormatUint(uint64(one.View), 10))
		b.WriteByte(',')
		if reasons {
			b.WriteString(url.QueryEscape(one.Why))
		}
	}
	return b.String()
}

// parseFailures reads what format writes, and nothing else. An empty value is an empty list.
func parseFailures(value string) (failures, error) {
	f := failures{}
	rest, ok := strings.CutPrefix(value, failedValue)
	if !ok {
		rest, f.more = strings.CutPrefix(value, failedValueMore)
	}
	if value == "" {
		return f, nil
	}
	for rest != "" {
		var entry string
		entry, rest, _ = strings.Cut(rest, "&")
		one, err := parseFailure(entry)
		if _, twice := f.find(one.Scheduler); err != nil || twice {
			return failures{}, ErrCorrupt
		}
		f.list = append(f.list, one)
	}
	if f.format(true) != value {
		return failures{}, ErrCorrupt
	}
	return f, nil
}

// parseFailure reads one entry.
func parseFailure(entry string) (one Failure, err error) {
	name, said, _ := strings.Cut(entry, "=")
	view, why, _ := strings.Cut(said, ",")
	at, err := strconv.ParseUint(view, 10, 64)
	if err != nil {
		return Failure{}, err
	}
	if one.Scheduler, err = url.QueryUnescape(name); err != nil {
		return Failure{}, err
	}
	one.Why, err = url.QueryUnescape(why)
	one.View = orbit.Revision(at)
	return one, err
}

// shorten cuts a text to at most that many bytes, between characters. It marks the cut if there is room for the mark.
func shorten(s string, most int) string {
	const mark = "…"
	if len(s) <= most {
		return strings.ToValidUTF8(s, "?")
	}
	end := ""
	if most > len(mark) {
		most, end = most-len(mark), mark
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.ToValidUTF8(s[:most], "?") + end
}
