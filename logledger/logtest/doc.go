// Package logtest has tests for implementations of [logledger.Log], and a log in memory that fails as stores do.
package logtest
