module github.com/chanq/chanq/bench/peers/peer

go 1.25.0
