"""The app of a SuperLink: does at the Grid what the process asks for that computes the cell."""

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fedbench.deployment.app import content, record
from fedbench.deployment.door import got, knock, put

app = ServerApp()


@app.main()
def relay(grid: Grid, context: Context) -> None:
    """Serve until the other side ends."""
    with knock(str(context.run_config["door"])) as there:
        while True:
            try:
                asked, contents = got(there)
            except ConnectionError:
                return
            if asked["do"] == "look":
                put(there, {"nodes": [[node.node_id, node.name] for node in grid.get_nodes()]})
            elif asked["do"] == "send":
                to = zip(asked["to"], contents, strict=True)
                messages = [Message(record(one), node, "train", ttl=asked["seconds"]) for node, one in to]
                put(there, {"ids": list(grid.push_messages(messages))})
            else:
                replies = [(r.metadata.reply_to_message_id, *_read(r)) for r in grid.pull_messages(asked["ids"])]
                put(there, {"came": [[id, error] for id, error, _ in replies]}, [found for *_, found in replies])


def _read(reply: Message) -> tuple[str, bytes]:
    """(why it failed, what it holds): a node may send anything, and the others' replies must arrive all the same."""
    if reply.has_error():
        return reply.error.reason or "it gave no reason", b""
    try:
        return "", content(reply)
    except Exception as error:
        return f"its reply is not a message of fedbench: {error!r}", b""
