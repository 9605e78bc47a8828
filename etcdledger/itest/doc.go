// Package itest tests etcdledger on real etcd servers, one member and three, on loopback, and orbit's rooms over etcdledger and
// diskledger. Each member is an operating-system process of its own that can be killed, and so is each process that has rooms
// or a ledger. The tests of such processes that share a ledger (strike_test.go, fairness_test.go) also run on pgledger. The
// tests are short; the environment variable ORBIT_ITEST_SCALE=10 makes most of them ten times as long, and -tags stress makes
// the others.
package itest
