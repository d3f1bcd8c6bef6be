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
                replies = list(grid.pull_messages(asked["ids"]))
                came = [[r.metadata.reply_to_message_id, r.error.reason if r.has_error() else ""] for r in replies]
                put(there, {"came": came}, [b"" if r.has_error() else content(r) for r in replies])
