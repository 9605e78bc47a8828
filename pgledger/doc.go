// Package pgledger keeps a ledger in a Postgres database, for any number of processes. It is a log for package logledger,
// which has the ledger itself: the README of each says more.
package pgledger
