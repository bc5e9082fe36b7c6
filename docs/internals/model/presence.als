/*
 * Presence: a process that is taken for dead begins no delivery afterwards.
 *
 * docs/internals/leases.md gives the rules, and docs/internals/model.md says what goes wrong without each of them. One
 * process is modelled, and another that watches it and evicts it. Its leases do not end by themselves: leases.als has
 * that. A promise and a doubt last one tick.
 */
module presence

open util/ordering[Time] as time
open util/ordering[Session] as session
open util/ordering[Lease] as lease
open util/ordering[Term] as term

abstract sig Rule {}
one sig DoubtLastsAsLongAsTrust, AnswerFromQuestion, PromiseBeforeDeclaration, DeclaredOnlyIfRequested, FreeOnceWithdrawn,
	LockOfItsOwn, LeaseOfThisTerm, LockOfThisLife extends Rule {}

// Left.out is the rule that a command leaves out.
one sig Left { out: lone Rule }
pred kept[r: Rule] { r not in Left.out }

sig Time {}
sig Term {}
sig Lease {}
one sig Clock { var now: one Time }

// ---- the database ------------------------------------------------------------------------------------------

enum Statement { Request, Declare, Withdraw }
sig Session {
	var sent: set Statement, // the server may execute it at any time
	var done: set Statement  // executed, with the answer on its way
}
var sig Opened, Alive in Session {} // the lock of a session is held while it is alive
var sig OfThisLife in Session {}    // opened since the last failover
var sig Asked in Session {}         // its presence was requested
var sig Found in Session {}         // its withdrawal has found it in the row

// What the row of the process says: nothing, once it was evicted. And the lease that the process has.
one sig Row { var names: lone Session, var how: lone How, var leased: lone Lease }
enum How { Requested, Declared, Withdrawn }

// ---- the processes -----------------------------------------------------------------------------------------

one sig Process {
	var uses: lone Session,
	var asked: lone Time,           // a question to the session
	var trusted: lone Time,           // when the last answer no longer counts
	var number: one Term,           // counts the evictions that it knows of
	var wants, holds: lone Lease,
	var requested, under: lone Term // when these were requested
}
var sig Answered, Promised in Process {}
var sig Given in Lease {}
var sig Ended in Lease {} // by an eviction

// Another process, and when it has first seen that a lock is free.
one sig Watcher { var free: Session -> lone Time }

enum Event { Tick, Open, EndSession, Question, Answer, Hear, Send, Execute, Learn, AskLease, GiveLease, GetLease, Begin, See, Evict, Failover, Nothing }
one sig Step { var event: one Event, var who: lone Session, var statement: lone Statement }

pred init {
	Clock.now = time/first and no sent and no done and no Opened and no Alive and no OfThisLife and no Asked and no Found and no names and no how
	leased = Row->lease/first and holds = Process->lease/first and under = Process->term/first and number = Process->term/first
	no uses and no asked and no trusted and no wants and no requested and no Answered and no Promised and no Given and no Ended and no free
}

pred openSession[s: Session] {
	s not in Opened and prevs[s] in Opened and no Process.uses
	Opened' = Opened + s and Alive' = Alive + s and OfThisLife' = OfThisLife + s and uses' = Process->s
	no asked' and no trusted' and no Answered'
}

// An answer counts from when the session was asked, and prolongs the promise.
pred question { some Process.uses and asked' = Process->Clock.now and no Answered' and trusted' = trusted }
pred answer { some Process.asked and Process.uses in Alive and Answered' = Process and asked' = asked and trusted' = trusted }
pred hear {
	some Answered and no Answered' and no asked'
	kept[AnswerFromQuestion] => trusted' = Process->Process.asked.next else trusted' = Process->Clock.now.next
	some trusted'
}

// The presence is requested, declared, and withdrawn. What a client has given up may still be executed.
pred send[s: Session, x: Statement] {
	s = Process.uses and sent' = sent + s->x
	x = Request => {
		s not in Asked and Asked' = Asked + s and some Process.trusted and done' = done
		kept[PromiseBeforeDeclaration] => Promised' = Process else Promised' = Promised
	}
	x != Request => Asked' = Asked
	x = Declare => Request in s.done and Withdraw not in s.(sent + done) and done' = done - s->Request and Promised' = Promised
	x = Withdraw => {
		s in Asked and Withdraw not in s.(sent + done) and done' = done
		kept[FreeOnceWithdrawn] => Promised' = Promised else no Promised'
	}
}

pred execute[s: Session, x: Statement] {
	x in s.sent and sent' = sent - s->x and done' = done + s->x
	x = Request => {
		Found' = Found
		(Row.names = s and Row.how = Withdrawn)
			=> names' = names and how' = how else names' = Row->s and how' = Row->Requested
	}
	x = Declare => {
		Found' = Found
		(kept[DeclaredOnlyIfRequested] and not (Row.names = s and Row.how = Requested))
			=> names' = names and how' = how else names' = Row->s and how' = Row->Declared
	}
	x = Withdraw => (Row.names = s => Found' = Found + s and names' = names and how' = Row->Withdrawn
		else Found' = Found and names' = names and how' = how)
}

// Once the session is withdrawn, the leases alone decide; if the row does not name it, the leases are gone.
pred learn[s: Session, x: Statement] {
	x in s.done - Request and done' = done - s->x
	x = Declare => uses' = uses and number' = number and (kept[PromiseBeforeDeclaration] => Promised' = Promised else Promised' = Process)
	x = Withdraw => {
		no uses' and no Promised'
		s in Found => number' = number else some Process.number.next and number' = Process->Process.number.next
	}
}

pred begin {
	some Process.holds
	kept[LeaseOfThisTerm] => Process.under = Process.number
	some Promised => some Process.trusted and lt[Clock.now, Process.trusted]
}

// The watcher looks at the lock that the row names, and evicts the process some time after it has seen it free.
pred see[s: Session] {
	s = Row.names and Row.how = Declared and s not in Alive and no s.(Watcher.free)
	free' = free + Watcher->s->Clock.now
}
pred evict[s: Session] {
	s = Row.names and Row.how = Declared and s not in Alive and some s.(Watcher.free)
	kept[LockOfThisLife] => s in OfThisLife
	let seen = (kept[LockOfItsOwn] => s.(Watcher.free) else min[Session.(Watcher.free)]) |
		kept[DoubtLastsAsLongAsTrust] => some seen.next and lte[seen.next, Clock.now]
	no names' and no how' and no leased' and Ended' = Ended + Row.leased
}

// All sessions end. A standby may lack a withdrawal.
pred failover {
	some OfThisLife and no Alive' and no OfThisLife'
	names' = names and leased' = leased and (how' = how or Row.how = Withdrawn and how' = Row->Declared)
}

pred step {
	let e = Step.event, s = Step.who, x = Step.statement {
		some s iff e in Open + EndSession + Send + Execute + Learn + See + Evict
		some x iff e in Send + Execute + Learn
		e = Tick => some Clock.now.next and now' = Clock->Clock.now.next
		e = Open => openSession[s]
		e = EndSession => s in Alive and Alive' = Alive - s
		e = Question => question
		e = Answer => answer
		e = Hear => hear
		e = Send => send[s, x]
		e = Execute => execute[s, x]
		e = Learn => learn[s, x]
		e = AskLease => no Process.wants and some Process.(holds.next) - Given and wants' = Process->Process.holds.next and requested' = number
		e = GiveLease => some Process.wants - Given and Given' = Given + Process.wants and leased' = Row->Process.wants
		e = GetLease => some Process.wants & Given and holds' = wants and under' = requested and no wants' and no requested'
		e = Begin => begin
		e = See => see[s]
		e = Evict => evict[s]
		e = Failover => failover
		e != Tick => now' = now
		e != Open => Opened' = Opened
		e not in Open + EndSession + Failover => Alive' = Alive
		e not in Open + Failover => OfThisLife' = OfThisLife
		e not in Open + Learn => uses' = uses
		e not in Open + Question + Answer + Hear => asked' = asked and trusted' = trusted and Answered' = Answered
		e not in Send + Execute => sent' = sent
		e not in Send + Execute + Learn => done' = done
		e not in Send + Learn => Promised' = Promised
		e != Send => Asked' = Asked
		e not in Execute + Evict + Failover => names' = names and how' = how
		e != Execute => Found' = Found
		e != Learn => number' = number
		e not in GiveLease + Evict + Failover => leased' = leased
		e not in AskLease + GetLease => wants' = wants and requested' = requested
		e != GiveLease => Given' = Given
		e != GetLease => holds' = holds and under' = under
		e != See => free' = free
		e != Evict => Ended' = Ended
	}
}

// Nothing happens only at the end.
fact events { init and always (step and (Step.event = Nothing => Step.event' = Nothing)) }

// No delivery begins under a lease that an eviction has ended.
pred noDeliveryBeginsAfterAnEviction { always (Step.event = Begin => no Process.holds & Ended) }

check allRules { no Left.out => noDeliveryBeginsAfterAnEviction } for 1 but 2 Lease, 2 Term, 2 Time, 20..20 steps expect 0
check largeScope { no Left.out => noDeliveryBeginsAfterAnEviction } for 2 but 3 Time, 26..26 steps expect 0

// Only these events happen. A counterexample that needs no others is found sooner.
pred only[events: set Event] { always Step.event in events + Nothing }

fun session: set Event { Tick + Open + EndSession + Question + Answer + Hear + Send + Execute + Learn + See + Evict + Begin }

// ---- each rule left out ------------------------------------------------------------------------------------

run withoutDoubtLastsAsLongAsTrust { Left.out = DoubtLastsAsLongAsTrust and only[session]
	and (Step.event = Open; Step.event = Question; Step.event = Answer; Step.event = Hear; Step.event = Send; Step.event = Execute; Step.event = Send; Step.event = Execute)
	and not noDeliveryBeginsAfterAnEviction }
	for 1 but 2 Time, 13..13 steps expect 1
run withoutAnswerFromQuestion { Left.out = AnswerFromQuestion and only[session]
	and (Step.event = Open; Step.event = Question; Step.event = Answer)
	and not noDeliveryBeginsAfterAnEviction }
	for 1 but 3 Time, 16..16 steps expect 1
run withoutPromiseBeforeDeclaration { Left.out = PromiseBeforeDeclaration and only[session]
	and (Step.event = Open; Step.event = Question; Step.event = Answer; Step.event = Hear; Step.event = Send; Step.event = Execute; Step.event = Send; Step.event = Execute)
	and not noDeliveryBeginsAfterAnEviction }
	for 1 but 2 Time, 14..14 steps expect 1
run withoutDeclaredOnlyIfRequested { Left.out = DeclaredOnlyIfRequested and only[session]
	and (Step.event = Open; Step.event = Question; Step.event = Answer; Step.event = Hear; Step.event = Send; Step.event = Execute; Step.event = Send)
	and not noDeliveryBeginsAfterAnEviction }
	for 1 but 2 Time, 17..17 steps expect 1
run withoutFreeOnceWithdrawn { Left.out = FreeOnceWithdrawn and only[session]
	and (Step.event = Open; Step.event = Question; Step.event = Answer; Step.event = Hear; Step.event = Send; Step.event = Execute; Step.event = Send; Step.event = Execute)
	and not noDeliveryBeginsAfterAnEviction }
	for 1 but 2 Time, 15..15 steps expect 1
run withoutLockOfItsOwn { Left.out = LockOfItsOwn and only[session]
	and (Step.event = Open; Step.event = Question; Step.event = Answer; Step.event = Hear; Step.event = Send; Step.event = Execute; Step.event = Send; Step.event = Execute;
	Step.event = EndSession; Step.event = See; Step.event = Send; Step.event = Execute; Step.event = Learn; Step.event = Tick;
	Step.event = Open; Step.event = Question; Step.event = Answer; Step.event = Hear; Step.event = Send; Step.event = Execute; Step.event = Send; Step.event = Execute)
	and not noDeliveryBeginsAfterAnEviction }
	for 2 but 1 Lease, 1 Term, 3 Time, 27..27 steps expect 1
run withoutLeaseOfThisTerm { Left.out = LeaseOfThisTerm and only[session + AskLease + GiveLease + GetLease] and not noDeliveryBeginsAfterAnEviction }
	for 2 but 1 Session, 2 Time, 18..18 steps expect 1
run withoutLockOfThisLife { Left.out = LockOfThisLife and only[session + Failover]
	and (Step.event = Open; Step.event = Question; Step.event = Answer; Step.event = Hear; Step.event = Send; Step.event = Execute; Step.event = Send; Step.event = Execute)
	and not noDeliveryBeginsAfterAnEviction }
	for 1 but 2 Time, 18..18 steps expect 1

// ---- what can happen ---------------------------------------------------------------------------------------

run anEvictedProcessDeliversUnderANewLease {
	no Left.out and only[session + AskLease + GiveLease + GetLease]
	and (Step.event = Open; Step.event = Question; Step.event = Answer; Step.event = Hear; Step.event = Send; Step.event = Execute; Step.event = Send; Step.event = Execute)
	and eventually (Step.event = Evict and eventually (Step.event = Begin and Process.holds = lease/last))
} for 2 but 1 Session, 2 Time, 20..20 steps expect 1
