/*
 * Delivering one lane: keys, parked deliveries, checkpoints, and the memory of what was delivered.
 *
 * docs/internals/delivery.md gives the rules, and docs/internals/model.md says what goes wrong without each of them.
 * One forwarder is modelled step by step. What another one does with the lane is one step (Elsewhere). That a
 * forwarder begins nothing without a right is shown in leases.als, and that it reads each row in reading.als.
 */
module delivery

open util/ordering[Row] as row
open util/ordering[Lease] as lease
open util/ordering[Checkpoint] as checkpoint

abstract sig Rule {}
one sig OnlySettledIsPassed, SettledAheadIsKept, RepeatUnchanged, NumberedCheckpoints, FencedCheckpoints, OneHead, HeldKeyParks,
	WaitingIsParkedToo, HeldKeysAreKnown, AskedOnceWritten, WrittenBeforeFree, AheadIsReadFirst, BusyIsLeftAlone, Remember, PassOn, NextEpochOnly,
	MemoryOfThisRevision, MemoryByOrigin extends Rule {}

// Left.out is the rule that a command leaves out.
one sig Left { out: lone Rule }
pred kept[r: Rule] { r not in Left.out }

sig Key {}
sig Row { key: one Key } // the rows of the log, in the order in which they are read
sig Lease {}
sig Revision {}

// ---- the destination ---------------------------------------------------------------------------------------

var sig Ever in Row {} // delivered
var sig Made in Row {} // delivered, and nobody has asked for it again since
var sig Disturbed in Left {} // the process has crashed, or another one has had the lane

// ---- the database ------------------------------------------------------------------------------------------

var sig Settled in Row {}           // what the cursor has passed: rows before its position, and ranges ahead of it
var sig Retrying, Blocked in Row {} // the parked table
one sig Cursor { var newest: lone Lease, var number: lone Checkpoint, var revision: one Revision }
fun parked: set Row { Retrying + Blocked }

sig Checkpoint {
	var under: lone Lease,
	var settles, retries, blocks, unparks: set Row
}
var sig Sent in Checkpoint {}
var sig Applied in Checkpoint {} // the database has seen it while its lease was the newest

// ---- the process -------------------------------------------------------------------------------------------

one sig Lane {
	var held_: lone Lease,      // the lease under which it works
	var as_: lone Revision,     // the revision when the lease was given
	var taken: lone Checkpoint, // the checkpoint whose answer is awaited
	var last_: lone Lease,      // memory: which lease has left it, and its revision
	var then_: lone Revision
}
var sig Seen in Row {}                    // read from the log under this lease, or before its position
var sig Before in Row {}                  // settled before the lease, and not read yet
var sig Ready, Flight, Waiting in Row {}  // heads of their keys, and what waits behind them
var sig FromTable in Row {}               // taken from the parked table, until the outcome is written
var sig Held in Key {}                    // the table may have something of the key
var sig Window in Row {}                  // settled
var sig ToRetry, ToBlock, ToUnpark in Row {} // outcomes that are not known to be written
var sig Unwritten in Row {}               // delivered from the log, and not known to be written
var sig OfLog, OfTable in Row {}          // memory: delivered, and not known to be written, under an earlier lease

pred works { some Lane.held_ }
pred hasRight { works and Lane.held_ = Cursor.newest }
fun active: set Row { Ready + Flight + Waiting }
fun of[k: Key]: set Row { key.k }

// ---- what happens ------------------------------------------------------------------------------------------

enum Event { Acquire, Read, Begin, Deliver, Fail, Spill, Save, Amend, Apply, Hear, Due, Follow, End, Crash, Elsewhere, Replay, ReplayCursor, Nothing }
one sig Step { var event: one Event, var row_: lone Row, var key_: lone Key, var checkpoint_: lone Checkpoint }

pred init {
	no Ever and no Made and no Disturbed and no Settled and no Retrying and no Blocked and no newest and no number
	no under and no settles and no retries and no blocks and no unparks and no Sent and no Applied
	no held_ and no as_ and no taken and no last_ and no then_ and noSession and no OfLog and no OfTable
}
pred noSession {
	no Seen and no Before and no Ready and no Flight and no Waiting and no FromTable and no Held
	no Window and no ToRetry and no ToBlock and no ToUnpark and no Unwritten
}

pred nextLease { no Cursor.newest => Cursor.newest' = lease/first else some Cursor.newest.next and Cursor.newest' = Cursor.newest.next }

// The lane is leased: the process knows the cursor, which keys are held, and what it remembers.
pred acquire {
	not works and no Flight and nextLease
	held_' = Lane->Cursor.newest' and as_' = Lane->Cursor.revision and no taken'
	Window' = Settled
	Seen' = { r: Row | r + prevs[r] in Settled }
	Before' = Settled - Seen'
	kept[HeldKeysAreKnown] => Held' = parked.key else no Held'
	no Ready' and no Flight' and no Waiting' and no FromTable' and no ToRetry' and no ToBlock' and no ToUnpark' and no Unwritten'
	(kept[NextEpochOnly] and Lane.last_ != prev[Cursor.newest']) => no OfLog' and no OfTable' else {
		OfLog' = OfLog
		(kept[MemoryOfThisRevision] and Lane.then_ != Cursor.revision) => no OfTable' else OfTable' = OfTable
	}
}

pred read[r: Row] {
	works and r not in Seen and prevs[r] in Seen and Seen' = Seen + r
	let skipped = r in Before, remembered = r in OfLog - Before, blocked = not skipped and not remembered and r.key in Held and kept[HeldKeyParks],
		waits = not skipped and not remembered and not blocked and some of[r.key] & active and kept[OneHead] {
		Before' = Before - r
		OfLog' = OfLog - r
		remembered => Unwritten' = Unwritten + r else Unwritten' = Unwritten
		(remembered or blocked) => Window' = Window + r else Window' = Window
		blocked => ToBlock' = ToBlock + r else ToBlock' = ToBlock
		waits => Waiting' = Waiting + r else Waiting' = Waiting
		(skipped or remembered or blocked or waits) => Ready' = Ready else Ready' = Ready + r
	}
}

pred begin[r: Row] { hasRight and r in Ready and Ready' = Ready - r and Flight' = Flight + r }

// The next delivery of the key becomes its head.
pred advance[r: Row] {
	let next_ = min[of[r.key] & Waiting] | Waiting' = Waiting - next_ and Ready' = Ready + next_
}

pred deliver[r: Row] {
	r in Flight and Flight' = Flight - r
	Ever' = Ever + r and Made' = Made + r
	r in FromTable
		=> ToUnpark' = ToUnpark + r and Window' = Window and Unwritten' = Unwritten
		else ToUnpark' = ToUnpark and Window' = Window + r and Unwritten' = Unwritten + r
	advance[r]
}

// The delivery is parked as retrying, and what waits behind it as blocked, or it stays in the table.
pred fail[r: Row] {
	r in Flight and Flight' = Flight - r
	ToRetry' = ToRetry + r and Held' = Held + r.key
	kept[WaitingIsParkedToo] => {
		let behind = of[r.key] & Waiting {
			Waiting' = Waiting - behind and Ready' = Ready
			ToBlock' = ToBlock + (behind - FromTable)
			Window' = Window + (r + behind - FromTable)
			FromTable' = FromTable - behind
		}
	} else advance[r] and ToBlock' = ToBlock and Window' = Window + (r - FromTable) and FromTable' = FromTable
}

// A key with much in memory leaves to the table what waits behind its head.
pred spill[k: Key] {
	let behind = of[k] & Waiting - FromTable {
		some behind and no of[k] & Waiting & FromTable
		Waiting' = Waiting - behind and ToBlock' = ToBlock + behind and Window' = Window + behind and Held' = Held + k
	}
}

// ---- checkpoints -------------------------------------------------------------------------------------------

pred compose[c: Checkpoint] {
	kept[OnlySettledIsPassed] => settles' = settles - c->Row + c->Window else settles' = settles - c->Row + c->(Window + Seen)
	retries' = retries - c->Row + c->ToRetry
	blocks' = blocks - c->Row + c->ToBlock
	unparks' = unparks - c->Row + c->ToUnpark
}
pred save[c: Checkpoint] {
	works and no Lane.taken and c not in Sent and prevs[c] in Sent
	Sent' = Sent + c and under' = under + c->Lane.held_ and taken' = Lane->c
	compose[c]
}

// Without the rule, a checkpoint whose answer was lost is sent again with what was settled since.
pred amend[c: Checkpoint] { not kept[RepeatUnchanged] and c = Lane.taken and compose[c] }

// The database may see a checkpoint several times, and late.
pred apply[c: Checkpoint] {
	c in Sent
	kept[FencedCheckpoints] => c.under = Cursor.newest
	Applied' = Applied + c
	(kept[NumberedCheckpoints] and Cursor.number in nexts[c] + c and some Cursor.number)
		=> number' = number and Settled' = Settled and Retrying' = Retrying and Blocked' = Blocked
		else {
			number' = Cursor->c
			kept[SettledAheadIsKept] => Settled' = c.settles else Settled' = { r: c.settles | prevs[r] in c.settles }
			Retrying' = Retrying - c.unparks + c.retries
			Blocked' = Blocked - c.unparks - c.retries + (c.blocks - Retrying')
		}
}

pred hear[c: Checkpoint] {
	c = Lane.taken and c in Applied and no taken'
	ToRetry' = ToRetry - c.retries and ToBlock' = ToBlock - c.blocks and ToUnpark' = ToUnpark - c.unparks
	Unwritten' = Unwritten - c.settles
	FromTable' = FromTable - c.unparks - c.retries
}

// ---- what was parked ---------------------------------------------------------------------------------------

fun remembered: set Row { OfTable + { r: OfLog | not kept[MemoryByOrigin] } }

// Deliveries of the table get their turn, or are settled if they were delivered under the lease before.
pred resume[found: set Row] {
	let made = found & remembered, others = found - made, k = found.key {
		ToUnpark' = ToUnpark + made
		OfTable' = OfTable - made and OfLog' = OfLog - made
		FromTable' = FromTable + found
		some of[k] & active => Waiting' = Waiting + others and Ready' = Ready
			else Ready' = Ready + min[others] and Waiting' = Waiting + others - min[others]
	}
}

pred due[r: Row] {
	hasRight and no Lane.taken and r in Retrying
	kept[BusyIsLeftAlone] => r not in FromTable else r not in active
	Held' = Held + r.key
	resume[r]
}

// The head of a held key has ended, so the table is asked for the next ones.
pred follow[k: Key] {
	hasRight and no Lane.taken and k in Held and no of[k] & active
	kept[AheadIsReadFirst] => no Before
	kept[AskedOnceWritten] => no of[k] & ToRetry
	no of[k] & parked => {
		kept[WrittenBeforeFree] => no of[k] & ToBlock
		Held' = Held - k
		Ready' = Ready and Waiting' = Waiting and FromTable' = FromTable and ToUnpark' = ToUnpark and OfLog' = OfLog and OfTable' = OfTable
	} else {
		let found = { r: of[k] & Blocked | no (prevs[r] + r) & of[k] & (Retrying + FromTable) } | some found and resume[found]
		Held' = Held
	}
}

// ---- the end of a lease ------------------------------------------------------------------------------------

// The lease was lost, or was over. What was delivered and not written is remembered.
pred end {
	works and no Flight and no held_' and no taken'
	kept[Remember] => {
		kept[PassOn] => OfLog' = OfLog + Unwritten and OfTable' = OfTable + ToUnpark else OfLog' = Unwritten and OfTable' = ToUnpark
	} else no OfLog' and no OfTable'
	last_' = held_ and then_' = as_ and as_' = as_
	sessionEnds
}
pred crash {
	works and no Flight' and no held_' and no taken' and no OfLog' and no OfTable' and no last_' and no then_' and no as_'
	Disturbed' = Left
	sessionEnds
}
pred sessionEnds {
	no Seen' and no Before' and no Ready' and no Flight' and no Waiting' and no FromTable' and no Held'
	no Window' and no ToRetry' and no ToBlock' and no ToUnpark' and no Unwritten'
}

// Another forwarder has the lane for a while. It delivers, and parks one delivery with what follows it in its key.
pred elsewhere {
	nextLease and Disturbed' = Left
	Settled in Settled' and Made in Made' and Ever' = Ever + Made' and number' = number
	all r: Made' - Made + Retrying' - Retrying | of[r.key] & prevs[r] in Ever'
	lone Retrying' - Retrying and Retrying in Retrying' and Blocked in Blocked'
	no (Retrying' - Retrying + Blocked' - Blocked) & (Settled + Made')
	all r: Blocked' - Blocked | some of[r.key] & prevs[r] & Retrying' and of[r.key] & prevs[r] in Ever' + Retrying' + Blocked'
	Settled' = Settled + (Made' - parked - Made) + (Retrying' - Retrying) + (Blocked' - Blocked)
	no (Made' - Made) & (parked + Settled)
}

// ---- people ------------------------------------------------------------------------------------------------

// A person wants a settled row to be delivered again: it is parked, or, if the log is a source, the cursor goes back
// and the leases end.
pred replay[r: Row] {
	r in Settled & Made - parked
	Retrying' = Retrying + r and Made' = Made - r
	Cursor.revision' != Cursor.revision
}
pred replayCursor {
	some Settled - parked and no parked and nextLease
	no Settled' and Made' = Made - Settled
}

pred step {
	let e = Step.event, r = Step.row_, k = Step.key_, c = Step.checkpoint_ {
		some r iff e in Read + Begin + Deliver + Fail + Due + Replay
		some k iff e in Spill + Follow
		some c iff e in Save + Amend + Apply + Hear
		e = Acquire => acquire
		e = Read => read[r]
		e = Begin => begin[r]
		e = Deliver => deliver[r]
		e = Fail => fail[r]
		e = Spill => spill[k]
		e = Save => save[c]
		e = Amend => amend[c]
		e = Apply => apply[c]
		e = Hear => hear[c]
		e = Due => due[r]
		e = Follow => follow[k]
		e = End => end
		e = Crash => crash
		e = Elsewhere => elsewhere
		e = Replay => replay[r]
		e = ReplayCursor => replayCursor
		e not in Deliver + Elsewhere => Ever' = Ever
		e not in Deliver + Elsewhere + Replay + ReplayCursor => Made' = Made
		e not in Crash + Elsewhere => Disturbed' = Disturbed
		e not in Apply + Elsewhere + ReplayCursor => Settled' = Settled
		e not in Apply + Elsewhere + Replay => Retrying' = Retrying
		e not in Apply + Elsewhere => Blocked' = Blocked and number' = number
		e not in Acquire + Elsewhere + ReplayCursor => newest' = newest
		e != Replay => revision' = revision
		e != Save => Sent' = Sent and under' = under
		e not in Save + Amend => settles' = settles and retries' = retries and blocks' = blocks and unparks' = unparks
		e != Apply => Applied' = Applied
		e not in Acquire + End + Crash => held_' = held_ and as_' = as_
		e not in Acquire + Fail + Spill + Due + Follow + End + Crash => Held' = Held
		e not in Acquire + Save + Hear + End + Crash => taken' = taken
		e not in End + Crash => last_' = last_ and then_' = then_
		e not in Acquire + Read + End + Crash => Seen' = Seen and Before' = Before
		e not in Acquire + Read + Begin + Deliver + Fail + Due + Follow + End + Crash => Ready' = Ready
		e not in Acquire + Begin + Deliver + Fail + End + Crash => Flight' = Flight
		e not in Acquire + Read + Deliver + Fail + Spill + Due + Follow + End + Crash => Waiting' = Waiting
		e not in Acquire + Fail + Hear + Due + Follow + End + Crash => FromTable' = FromTable
		e not in Acquire + Read + Deliver + Fail + Spill + End + Crash => Window' = Window
		e not in Acquire + Fail + Hear + End + Crash => ToRetry' = ToRetry
		e not in Acquire + Read + Fail + Spill + Hear + End + Crash => ToBlock' = ToBlock
		e not in Acquire + Deliver + Hear + Due + Follow + End + Crash => ToUnpark' = ToUnpark
		e not in Acquire + Read + Deliver + Hear + End + Crash => Unwritten' = Unwritten
		e not in Acquire + Read + Due + Follow + End + Crash => OfLog' = OfLog
		e not in Acquire + Due + Follow + End + Crash => OfTable' = OfTable
	}
}

// Nothing happens only at the end.
fact events { init and always (step and (Step.event = Nothing => Step.event' = Nothing)) }

// ---- what must hold ----------------------------------------------------------------------------------------

// What the cursor has passed was delivered, or is parked.
pred losesNothing { always Settled in Made + parked }

// The cursor never goes back, unless a person wants it.
pred goesForward { always (Step.event != ReplayCursor => Settled in Settled') }

// The first deliveries of a key begin in the order of the log.
pred keepsOrder { always ((Step.event = Begin and Step.row_ not in Ever) => of[Step.row_.key] & prevs[Step.row_] in Ever) }

// Nothing is delivered again while one process has the lane, unless a person wants it.
pred repeatsNothing { always (Step.event = Begin and no Disturbed => Step.row_ not in Made) }

pred safe { losesNothing and goesForward and keepsOrder and repeatsNothing }

check allRules { no Left.out => safe } for 1 but 2 Row, 2 Lease, 9..9 steps expect 0
check allRulesOfKeys { no Left.out and only[log + Fail + Spill + Due + Follow] => safe } for 1 but 3 Row, 10..10 steps expect 0
check allRulesOfLeases { no Left.out and only[log + End + Elsewhere + Crash] => safe } for 1 but 1 Row, 3 Lease, 2 Checkpoint, 12..12 steps expect 0
check allRulesOfPeople { no Left.out and only[log + End + Due + Replay + ReplayCursor] => safe }
	for 1 but 2 Revision, 3 Lease, 2 Checkpoint, 13..13 steps expect 0
check largeScope { no Left.out => safe } for 2 but 3 Row, 12..12 steps expect 0

// Only these events happen. A counterexample that needs no others is found sooner.
pred only[events: set Event] { always Step.event in events + Nothing }

fun log: set Event { Acquire + Read + Begin + Deliver + Save + Apply + Hear }

// ---- each rule left out ------------------------------------------------------------------------------------

run withoutOnlySettledIsPassed { Left.out = OnlySettledIsPassed and only[log] and not losesNothing }
	for 1 but 1 Key, 5..5 steps expect 1
run withoutSettledAheadIsKept { Left.out = SettledAheadIsKept and only[log + End]
	and (Step.event = Acquire; Step.event = Read; Step.event = Read; Step.event = Begin; Step.event = Deliver; Step.event = Save; Step.event = Apply; Step.event = Hear)
	and not repeatsNothing }
	for 2 but 1 Revision, 1 Checkpoint, 14..14 steps expect 1
run withoutRepeatUnchanged { Left.out = RepeatUnchanged and only[log + Fail + Amend]
	and (Step.event = Acquire; Step.event = Save; Step.event = Apply; Step.event = Read)
	and not losesNothing }
	for 1 but 2 Checkpoint, 11..11 steps expect 1
run withoutNumberedCheckpoints { Left.out = NumberedCheckpoints and only[log]
	and (Step.event = Acquire; Step.event = Save; Step.event = Apply; Step.event = Hear; Step.event = Read)
	and not goesForward }
	for 1 but 2 Checkpoint, 11..11 steps expect 1
run withoutFencedCheckpoints { Left.out = FencedCheckpoints and only[log + Elsewhere] and not goesForward }
	for 1 but 2 Lease, 6..6 steps expect 1
run withoutOneHead { Left.out = OneHead and only[log] and not keepsOrder }
	for 1 but 2 Row, 6..6 steps expect 1
run withoutHeldKeyParks { Left.out = HeldKeyParks and only[log + Fail] and not keepsOrder }
	for 1 but 2 Row, 8..8 steps expect 1
run withoutWaitingIsParkedToo { Left.out = WaitingIsParkedToo and only[log + Fail] and not keepsOrder }
	for 1 but 2 Row, 8..8 steps expect 1
run withoutHeldKeysAreKnown { Left.out = HeldKeysAreKnown and only[log + Fail + End]
	and (Step.event = Acquire; Step.event = Read; Step.event = Begin; Step.event = Fail; Step.event = Save; Step.event = Apply)
	and not keepsOrder }
	for 1 but 2 Row, 2 Lease, 11..11 steps expect 1
run withoutAskedOnceWritten { Left.out = AskedOnceWritten and only[log + Fail + Follow] and not keepsOrder }
	for 1 but 2 Row, 8..8 steps expect 1
run withoutWrittenBeforeFree { Left.out = WrittenBeforeFree and only[log + Spill + Follow] and not keepsOrder }
	for 1 but 3 Row, 10..10 steps expect 1
run withoutAheadIsReadFirst { Left.out = AheadIsReadFirst and only[log + Spill + End + Follow]
	and (Step.event = Acquire; Step.event = Read; Step.event = Read; Step.event = Spill; Step.event = Save; Step.event = Apply)
	and not keepsOrder }
	for 1 but 2 Row, 2 Lease, 11..11 steps expect 1
run withoutBusyIsLeftAlone { Left.out = BusyIsLeftAlone and only[log + Fail + Due]
	and (Step.event = Acquire; Step.event = Read; Step.event = Begin; Step.event = Fail; Step.event = Save; Step.event = Apply; Step.event = Hear; Step.event = Due)
	and not repeatsNothing }
	for 1 but 2 Checkpoint, 13..13 steps expect 1
run withoutRemember { Left.out = Remember and only[log + End] and not repeatsNothing }
	for 1 but 2 Lease, 9..9 steps expect 1
run withoutPassOn { Left.out = PassOn and only[log + End]
	and (Step.event = Acquire; Step.event = Read; Step.event = Begin; Step.event = Deliver)
	and not repeatsNothing }
	for 1 but 3 Lease, 11..11 steps expect 1
run withoutNextEpochOnly { Left.out = NextEpochOnly and only[log + End + ReplayCursor]
	and (Step.event = Acquire; Step.event = Read; Step.event = Begin; Step.event = Deliver; Step.event = Save; Step.event = Apply)
	and not losesNothing }
	for 1 but 3 Lease, 2 Checkpoint, 13..13 steps expect 1
run withoutMemoryOfThisRevision { Left.out = MemoryOfThisRevision and only[log + End + Due + Elsewhere + Replay]
	and (Step.event = Elsewhere; Step.event = Acquire; Step.event = Due; Step.event = Begin; Step.event = Deliver; Step.event = Save; Step.event = Apply)
	and not losesNothing }
	for 1 but 2 Revision, 3 Lease, 2 Checkpoint, 14..14 steps expect 1
run withoutMemoryByOrigin { Left.out = MemoryByOrigin and only[log + End + Due + Replay]
	and (Step.event = Acquire; Step.event = Read; Step.event = Begin; Step.event = Deliver; Step.event = Save; Step.event = Apply)
	and not losesNothing }
	for 1 but 2 Revision, 2 Lease, 2 Checkpoint, 13..13 steps expect 1

// ---- what can happen ---------------------------------------------------------------------------------------

run aParkedDeliveryIsRetriedAndItsFollowerToo {
	no Left.out and only[log + Fail + Due + Follow]
	and (Step.event = Acquire; Step.event = Read; Step.event = Read; Step.event = Begin; Step.event = Fail; Step.event = Save; Step.event = Apply; Step.event = Hear)
	and eventually (Step.event = Due and eventually (Step.event = Deliver and eventually (Step.event = Follow and eventually (Step.event = Deliver and Ever' = Row))))
} for 1 but 2 Row, 2 Checkpoint, 18..18 steps expect 1
run aTakeoverGoesOnFromTheCursor {
	no Left.out and only[log + Elsewhere] and eventually (Step.event = Elsewhere and some Settled' and eventually (Step.event = Deliver and eventually Settled = Row))
} for 1 but 2 Row, 2 Lease, 9..9 steps expect 1
run aDeliveryIsRemembered { no Left.out and only[log + End]
	and (Step.event = Acquire; Step.event = Read; Step.event = Begin; Step.event = Deliver)
	and eventually (Step.event = Read and Step.row_ in OfLog and eventually Settled = Row) }
	for 1 but 2 Lease, 11..11 steps expect 1
