// Package table is the state machine of one table: its rows, and the answers
// given to its writes, so that a write sent again is done once.
//
// Applying the same entries gives the same bytes in the database on every node.
// The rules: nothing but the entry and what earlier entries left decides what
// happens. Time is the table's own clock, the sum of the times that leaders put
// into the entries. No text is stored, so that releases which word an answer
// differently still agree.
//
// A request id is remembered for a lifetime: KeepMade if a node made it,
// KeepKeyed if it comes from a client's Idempotency-Key. An id may be forgotten
// while a copy of its write is still on the way, so each write carries the
// highest position of the table that was known when it was accepted, and one that
// was born before the newest answer forgotten is refused: whether it was done can
// no longer be told. In memory stands only which entry answered an id; the answers
// are in the database. What they take is bounded, but the machine forgets nothing
// for that: Full tells the owner, which refuses what is new.
//
// Conditions are decided here, against the row as the entries before left it, and
// the answer is kept like any other.
//
// It may import node/api, wire and store.
package table
