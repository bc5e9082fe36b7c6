/*
 * The life of a server: what a crash or a failover takes back, and what a reader may still believe then.
 *
 * docs/internals/failures.md gives the rules, and docs/internals/model.md says what goes wrong without each of them. An
 * atom of Tx is a transaction, its id and its row; ids are handed out in order, and again after a crash. A delta is
 * read at once: reading.als has its parts.
 */
module life

open util/ordering[Tx] as tx

abstract sig Rule {}
one sig TargetOfTheLeasesLife, CheckpointOfTheLeasesLife, PageOfTheProbedServer, NoProbeOfAStandby extends Rule {}

// Left.out is the rule that a command leaves out.
one sig Left { out: lone Rule }
pred kept[r: Rule] { r not in Left.out }

sig Tx {}
fun to[x: lone Tx]: set Tx { prevs[x] + x }

sig Life {}
one sig Server { var life: one Life }
var sig Taken, Running, Committed in Tx {}
var sig Durable in Tx {}    // had ended when the cursor was written: its commit flushed them too
var sig Replicated in Tx {} // commits that a standby has

sig Target { var shows: set Tx, var from: lone Life }

// The place up to which everything was read, and what was read: of a reader in memory, and of the cursor.
one sig Reader { var base: set Tx, var found: set Tx, var life_: lone Life }
one sig Cursor { var passed: set Tx, var read: set Tx }

enum Event { Start, Commit, Abort, Replicate, Probe, Lease, ReadTo, Save, Crash, Nothing }
one sig Step { var event: one Event, var who: lone Tx, var target: lone Target }

pred init {
	no Taken and no Running and no Committed and no Durable and no Replicated and no shows and no from
	no base and no found and no life_ and no passed and no read
}

// The probe of a standby shows no transaction as running.
pred probe[t: Target] {
	no t.from and from' = from + t->Server.life
	some seen: Taken - Running + { x: Running | not kept[NoProbeOfAStandby] } | shows' = shows + t->seen
}

pred lease { base' = Reader->Cursor.passed and found' = Reader->Cursor.read and life_' = Reader->Server.life }

pred readTo[t: Target] {
	some Reader.life_ and some t.from and Reader.base in t.shows
	kept[TargetOfTheLeasesLife] => t.from = Reader.life_
	base' = Reader->t.shows and life_' = life_
	// The page fails on any other server than that of the lease, which is also the one that was probed.
	kept[PageOfTheProbedServer]
		=> Reader.life_ = Server.life and found' = found + Reader->(Committed & t.shows - Reader.base)
		else found' = found + Reader->(Replicated & t.shows - Reader.base)
}

pred save {
	some Reader.life_ and (kept[CheckpointOfTheLeasesLife] => Reader.life_ = Server.life)
	passed' = Cursor->Reader.base and read' = Cursor->Reader.found
	Durable' = Taken - Running
}

// A crash takes back ids from some id on, and commits that were not flushed. What runs is rolled back.
pred crash {
	Server.life' not in Server.life + Target.from + Reader.life_
	some x: Tx - to[max[Durable]] | Taken' = Taken & prevs[x]
	no Running' and Committed' in Committed & Taken' and Committed & Durable in Committed'
	Replicated' in Replicated & Committed'
}

pred step {
	let e = Step.event, x = Step.who, t = Step.target {
		some x iff e in Start + Commit + Abort + Replicate
		some t iff e in Probe + ReadTo
		e = Start => x not in Taken and prevs[x] in Taken and Taken' = Taken + x and Running' = Running + x
		e in Commit + Abort => x in Running and Running' = Running - x
		e = Commit => Committed' = Committed + x
		e = Replicate => x in Committed and Replicated' = Replicated + x
		e = Probe => probe[t]
		e = Lease => lease
		e = ReadTo => readTo[t]
		e = Save => save
		e = Crash => crash
		e not in Start + Crash => Taken' = Taken
		e not in Start + Commit + Abort + Crash => Running' = Running
		e not in Commit + Crash => Committed' = Committed
		e not in Replicate + Crash => Replicated' = Replicated
		e != Probe => shows' = shows and from' = from
		e not in Lease + ReadTo => base' = base and found' = found and life_' = life_
		e != Save => passed' = passed and read' = read and Durable' = Durable
		e != Crash => life' = life
	}
}

// Nothing happens only at the end.
fact events { init and always (step and (Step.event = Nothing => Step.event' = Nothing)) }

// The cursor has passed no committed row that was not read.
pred passesNothing { always Committed & Cursor.passed in Cursor.read }

check allRules { no Left.out => passesNothing } for 3 but 2 Life, 2 Target, 12..12 steps expect 0
check largeScope { no Left.out => passesNothing } for 4 but 3 Life, 3 Target, 18..18 steps expect 0

// ---- each rule left out ------------------------------------------------------------------------------------

run withoutTargetOfTheLeasesLife { Left.out = TargetOfTheLeasesLife and not passesNothing } for 2 but 2 Life, 2 Target, 11..11 steps expect 1
run withoutCheckpointOfTheLeasesLife { Left.out = CheckpointOfTheLeasesLife and not passesNothing } for 2 but 2 Life, 2 Target, 11..11 steps expect 1
run withoutPageOfTheProbedServer { Left.out = PageOfTheProbedServer and not passesNothing } for 2 but 2 Life, 2 Target, 9..9 steps expect 1
run withoutNoProbeOfAStandby { Left.out = NoProbeOfAStandby and not passesNothing } for 2 but 2 Life, 2 Target, 9..9 steps expect 1

// ---- what can happen ---------------------------------------------------------------------------------------

run anIdIsHandedOutAgainAndItsRowIsRead {
	no Left.out and some x: Tx | eventually (x in Committed and Step.event = Crash and x not in Committed' and eventually x in Cursor.read)
} for 2 but 2 Life, 2 Target, 12..12 steps expect 1
