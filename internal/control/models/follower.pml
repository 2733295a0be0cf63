/* One job with a decider and a follower: does every effect become visible once, at both?
 *
 * INCS incarnations start in any order and overlap in any way; a paused one is a zombie. All but the last may crash
 * at any step. There are N input records, each with one effect at the decider and one at the follower. A state is the
 * prefix of the input that it covers, so a position stands for it. Two epochs may be open. A commit is a request in
 * flight: the server may apply it after its sender is gone.
 *
 * Without a flag the model must hold. A flag under X takes one rule away, and spin must then find out; a flag under
 * "experiment" weakens a rule that another one backs, and the model still holds.
 */
#ifndef N
#define N 3
#endif
#ifndef INCS
#define INCS 3
#endif
#define CHECKPOINTS (N*INCS+1)

/* The store. Checkpoint 0 is genesis: empty state, decided everywhere. */
byte first[CHECKPOINTS], end_[CHECKPOINTS];     /* its epoch holds the records first .. end_-1 */
byte parent[CHECKPOINTS], owner[CHECKPOINTS];   /* the checkpoint before it; the incarnation that took it */
bool stored[CHECKPOINTS], outlog[CHECKPOINTS];  /* manifest and segments are there; the follower's output log is */
byte next = 1;                                  /* the number that the next checkpoint gets */

/* The two sinks: the incarnation that may write, the checkpoint in the ledger, and what a reader sees of each record. */
byte d_fence, d_ledger, d_seen[N];
byte f_fence, f_ledger, f_seen[N];

/* Commits in flight, one an incarnation and a sink (0: none), and their answers. */
#define DONE    1
#define REFUSED 2
byte d_sent[INCS+1], d_answer[INCS+1];
byte f_sent[INCS+1], f_answer[INCS+1];

byte ended;        /* incarnations that are over */
bool finished;     /* one of them came to the end of the input */

/* Makes an epoch's effects visible. None may be there already. */
#define SHOW(seen, c) for (r : first[c] .. end_[c]-1) { seen[r]++; assert(seen[r] == 1) }

#ifdef NOFENCE              /* X: the decider takes a commit from anybody */
#define D_ACCEPTS(i) true
#else
#define D_ACCEPTS(i) (d_fence == i)
#endif

#define F_FENCED(i) (f_fence == i)
#ifdef FOLBLIND             /* X: the follower compares neither incarnation nor ledger */
#define F_ACCEPTS(i, c) true
#elif defined(FOLCHAIN)     /* experiment: the ledger alone */
#undef F_FENCED
#define F_FENCED(i) true
#define F_ACCEPTS(i, c) (f_ledger == parent[c])
#elif defined(FOLFENCE)     /* experiment: the incarnation alone */
#define F_ACCEPTS(i, c) (f_fence == i)
#else
#define F_ACCEPTS(i, c) (f_fence == i && f_ledger == parent[c])
#endif

proctype Sinks() { byte i, r;
end: do
  :: atomic {
       select(i : 1 .. INCS);
       if :: d_sent[i] -> skip :: else -> goto end fi;
       if :: D_ACCEPTS(i) -> SHOW(d_seen, d_sent[i]); d_ledger = d_sent[i]; d_answer[i] = DONE
          :: else -> d_answer[i] = REFUSED
       fi;
       d_sent[i] = 0 }
  :: atomic {
       select(i : 1 .. INCS);
       if :: f_sent[i] -> skip :: else -> goto end fi;
       if :: F_ACCEPTS(i, f_sent[i]) -> SHOW(f_seen, f_sent[i]); f_ledger = f_sent[i]; f_answer[i] = DONE
          :: else -> f_answer[i] = ((f_ledger == f_sent[i] && F_FENCED(i)) -> DONE : REFUSED)  /* there already: done */
       fi;
       f_sent[i] = 0 }
  od
}

/* One incarnation. base is the committed checkpoint, one the epoch that is being committed, two the one behind it. */
#define RUNNING    0
#define DECIDING   1
#define DECIDED    2
#define FOLLOWING  3
#define FOLLOWED   4

proctype Incarnation(byte me) { byte base, one, two, at, phase, k, j;
  /* Recovery: fence every participant, then ask the decider, then restore what it names. */
#ifdef READFIRST            /* X: asks the decider before it is fenced */
  base = d_ledger;
#endif
  atomic { if :: d_fence < me -> d_fence = me :: else -> goto out fi }
  atomic { if :: f_fence < me -> f_fence = me :: else -> goto out fi }
#ifndef READFIRST
  base = d_ledger;
#endif
#ifdef NEWEST               /* X: believes the newest checkpoint in the store */
  d_step { for (k : 0 .. next-1) { if :: stored[k] -> base = k :: else fi } }
#endif
  atomic {
    if :: stored[base] -> at = end_[base]
       :: else -> assert(d_fence != me); goto out        /* it may be gone only for one that is fenced itself */
    fi }
  if :: me < INCS -> goto out :: true fi;                /* a crash inside recovery */
  atomic {                                               /* roll the follower forward */
    if :: f_ledger == base -> f_answer[me] = DONE
       :: else -> assert(f_fence != me || (f_ledger == parent[base] && outlog[base])); f_sent[me] = base
    fi }
  f_answer[me] > 0;
  if :: f_answer[me] == REFUSED -> goto out :: else -> f_answer[me] = 0 fi;
  d_step {                                               /* delete what is newer, of lower incarnations only */
    k = base+1;
    do :: k < next ->
#ifdef TOSSALL              /* X: whoever wrote it */
          stored[k] = false; outlog[k] = false;
#else
          if :: owner[k] < me -> stored[k] = false; outlog[k] = false :: else fi;
#endif
          k++
       :: else -> break
    od;
    k = 0 }

  /* Epochs. */
  do
  :: two == 0 && at < N -> atomic {                      /* barrier, freeze, prepare, checkpoint entry */
       select(k : at+1 .. N);
       first[next] = at; end_[next] = k; owner[next] = me; parent[next] = (one -> one : base);
       stored[next] = true; outlog[next] = true;
       at = k; k = 0;
#ifdef GCEARLY              /* X: the entry alone retires the older ones */
       for (j : 0 .. next-1) { stored[j] = false; outlog[j] = false }
#endif
       if :: one -> two = next :: else -> one = next fi;
       next++ }
  :: phase == RUNNING && one -> d_sent[me] = one; phase = DECIDING
  :: phase == DECIDING && d_answer[me] == REFUSED -> goto out
  :: phase == DECIDING && d_answer[me] == DONE -> d_answer[me] = 0; phase = DECIDED
#ifdef LOGEARLY             /* X: the output log goes with the decision */
       ; outlog[one] = false
#endif
  :: phase == DECIDED -> f_sent[me] = one; phase = FOLLOWING
#ifdef LEAD2                /* X: the next epoch is decided before the follower has this one */
  :: phase == DECIDED && two -> atomic { base = one; one = two; two = 0; phase = RUNNING }
#endif
  :: phase == FOLLOWING && f_answer[me] == REFUSED -> goto out
  :: phase == FOLLOWING && f_answer[me] == DONE -> f_answer[me] = 0; phase = FOLLOWED
  :: phase == FOLLOWED -> d_step {                       /* both ledgers name it: retire what is older, and its output log */
       for (k : 0 .. one-1) { if :: owner[k] <= me -> stored[k] = false; outlog[k] = false :: else fi }
       outlog[one] = false;
       k = 0; base = one; one = two; two = 0; phase = RUNNING }
  :: me < INCS -> goto out                               /* a crash; what it sent stays in flight */
  :: phase == RUNNING && one == 0 && at == N -> finished = true; break
  od;
out: ended++
}

/* Can move only where an invariant is broken: the decider's checkpoint is in the store, and the follower names it or
 * its parent, and then the output log is there. */
proctype Invariant() {
end: atomic { !stored[d_ledger] || (f_ledger != d_ledger && (parent[d_ledger] != f_ledger || !outlog[d_ledger])) -> assert(false) }
}

init { byte r;
  atomic {
    stored[0] = true; outlog[0] = true;
    for (r : 1 .. INCS) { run Incarnation(r) };
    run Sinks(); run Invariant() }
  (ended == INCS);
  assert(finished);                                      /* the last incarnation always gets to the end, */
  for (r : 0 .. N-1) { assert(d_seen[r] == 1 && f_seen[r] == 1) }  /* and each effect is there once, at both */
}
