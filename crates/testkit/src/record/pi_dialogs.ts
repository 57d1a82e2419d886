// A command that opens one dialog of each kind, and says what came of it.
export default function (pi: any) {
  pi.registerCommand("dialogs", {
    description: "Opens dialogs",
    handler: async (_args: string, ctx: any) => {
      const colour = await ctx.ui.select("Which colour?", ["Red", "Blue"]);
      const sure = await ctx.ui.confirm("Sure?", "It cannot be undone.");
      const name = await ctx.ui.input("Your name?", "a name");
      const text = await ctx.ui.editor("A text", "begun");
      ctx.ui.setStatus("dialogs", "done");
      ctx.ui.notify(`${colour}, ${sure}, ${name}, ${text}`, "info");
    },
  });
}
