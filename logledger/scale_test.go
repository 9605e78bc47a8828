package logledger_test

const chaosSeeds = 10
