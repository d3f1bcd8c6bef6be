"""Faulty executors: what makes `it`, and what is to be said of it."""

from __future__ import annotations


def _executor(work: str = "each(job)", each: str = "", after: str = "", before: str = "", made: str = "") -> str:
    """Cells one after the other in this process, or what is said instead of a step."""
    return f"""
import concurrent.futures, itertools, pickle, time
from fedbench.cell import worker
from fedbench.cell.order import Order

ROUND = {{"event": "round", "round": 1}}

def ended(order, end):
    facts = {{key: end[key] for key in ("status", "reason", "seconds")}}
    return {{"event": "ended", "folder": str(order.folder), **facts}}

def it(workers, most):
    {made or "pass"}
    def execute(jobs, on_event):
        def tell(order, **event):
            return on_event({{**event, "folder": str(order.folder)}})
        def each(job):
            order = Order.from_json(job)
            {each or "tell(order, event='started'); return on_event(ended(order, worker.run(order)))"}
        {before or "pass"}
        for number, job in enumerate(jobs):
            if not {work}:
                break
        {after or "return"}
    return execute
"""


ALL = "jobs = list(jobs); orders = [Order.from_json(job) for job in jobs]"
POOL = f"""{ALL}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            ends = list(pool.map(lambda order: worker.run(order), orders))"""
EXECUTORS = {
    "asks for nothing": (
        "def it():\n    return lambda jobs, on_event: None",
        "returns without asking for a job: take jobs from the iterator",
    ),
    "returns its events": (
        _executor(after="return [1]"),
        "tells what happens by on_event, and returns nothing, not list",
    ),
    "no function": ("def it(workers):\n    return workers", r"must return a function of \(jobs, on_event\), not int"),
    "loses a job": (_executor("(number == 1 or each(job))"), "job 2 was asked for, and its cell is not computed"),
    "runs it twice": (_executor("(each(job), worker.run(Order.from_json(job)))[0]"), "job 1 was computed 2 times"),
    "stops at a failure": (
        _executor(
            each="tell(order, event='started'); end = worker.run(order); on_event(ended(order, end)); "
            "return end['status'] == 'finished'"
        ),
        "returns when it has asked for 2 of 3 jobs, though `on_event` says True",
    ),
    "raises at a failure": (
        _executor(
            each="tell(order, event='started'); end = worker.run(order); on_event(ended(order, end)); "
            "end['traceback'] and 1 / 0; return True"
        ),
        r"`execute` raises ZeroDivisionError: .*is told as its end, so that the others are computed",
    ),
    "swallows failures": (
        _executor(
            each="tell(order, event='started'); end = worker.run(order); "
            "return on_event(ended(order, {**end, 'status': 'finished', 'reason': None}))"
        ),
        "job 2 is told to have ended as 'finished' .None., and its manifest says 'failed'",
    ),
    "tells no failure": (
        _executor(
            each="tell(order, event='started'); end = worker.run(order); "
            "return end['status'] == 'failed' or on_event(ended(order, end))"
        ),
        "that job 2 has ended was told 0 times",
    ),
    "tells it twice": (
        _executor(
            each="tell(order, event='started'); end = ended(order, worker.run(order)); "
            "on_event(end); return on_event(end)"
        ),
        "that job 1 has ended was told 2 times",
    ),
    "answers in the wrong order": (
        _executor(
            before=f"{POOL}\n        [tell(order, event='started') for order in orders]\n"
            "        [on_event(ended(*pair)) for pair in zip(orders, ends[1:] + ends[:1])]; jobs = []"
        ),
        "job 1 is told to have ended as 'failed' .*: is it the answer of another job",
    ),
    "tells the end first": (
        _executor(each="end = worker.run(order); on_event(ended(order, end)); return tell(order, event='started')"),
        "the events of job 1 come as ended, started: the first is `started`, the last `ended`",
    ),
    "does not wait": (
        _executor(
            each="tell(order, event='started'); return on_event(ended(order, "
            "{'status': 'finished', 'reason': None, 'seconds': 0.0}))"
        ),
        "job 1 was asked for, and its cell is not computed when `execute` returns",
    ),
    "an end without a reason": (
        _executor(
            each="tell(order, event='started'); worker.run(order); return tell(order, event='ended', status='finished')"
        ),
        "the event `ended` of job 1 has no reason, seconds",
    ),
    "tells of no folder": (
        _executor(each="tell(order, event='started'); worker.run(order); on_event({'event': 'ended'}); return True"),
        "it tells of a folder that no job has",
    ),
    "goes on after a no": (
        _executor("(each(job), True)[1]"),
        "`on_event` answered False, and the executor asks for another job",
    ),
    "swallows an interruption": (
        _executor(
            before="""try:
            for job in jobs:
                if not each(job):
                    return
        except BaseException:
            return"""
        ),
        "it swallows fedbench.errors.Interrupted, by which Ctrl-C",
    ),
    "pickles a lambda": (
        _executor(before="jobs = [pickle.loads(pickle.dumps(lambda: job)) for job in jobs]"),
        "raises .*what goes to another process is pickled: send the job, which is a string",
    ),
    "never returns": (_executor(after="time.sleep(600)"), "is silent for 2 seconds and does not return: "),
    "waits for what it lost": (
        _executor("(number == 1 or each(job))", after="time.sleep(600)"),
        "nothing came of job 2, which it has asked for: is it lost",
    ),
}


SOUND = _executor()
