// Package etcdledger keeps a ledger in etcd, for any number of processes. It is a log for package logledger, which has the
// ledger itself: the README of each says more.
//
// # What is in etcd
//
// All keys are below the prefix of the ledger. Index is an index in twenty digits, so that keys are in the order of the log.
//
//	meta                        the version of this layout, written once
//	head                        the index of the newest entry, and its tag
//	entry/INDEX                 an entry; the first line says its tag, that of the entry before, and in how many parts it is
//	post/WRITER/NUMBER          a post; the first line says which handle has stored it, and in how many parts it is
//	checkpoint                  which checkpoint is the newest, and in how many parts it is
//	blob/entry/INDEX/TAG/N      parts of an entry that is too large for one request, and in the same way
//	blob/post/WRITER/NUMBER/N   those of a post, and
//	blob/checkpoint/INDEX/TAG/N those of a checkpoint
//	terms/TOKEN                 the living terms of leases ([Refreshes])
//
// # Why it is right
//
// A tag is unique: it names the handle that made it and counts. An append is one transaction that compares the whole value of
// head with that of the entry before, and writes the entry and the next head. So one append in the world gets an index; one
// that comes late, or twice, writes nothing; and neither does one that is built on an entry which etcd has lost since, because
// the tag differs then. Parts are written before the key that names them, under names that nobody else writes, and never
// changed.
//
// Followers watch head and the posts, which are small, and read entries when they are told. They keep no copy of the log, so
// nothing has to be mended after a compaction or a watch that was lost: a new watch begins at the present revision, and tells
// its ledger to read.
package etcdledger
